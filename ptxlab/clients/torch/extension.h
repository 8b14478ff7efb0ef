// What the C++ of a PyTorch extension sees of PyTorch, where NVRTC compiles it: its tensors are numbers of tensors
// in Python, and what it asks of them is written to a mail box, of which printf tells the process that runs this.
#pragma once
#pragma nv_diag_suppress 177  // what is declared, and not used
#define PTXLAB_OF_INTEGERS(name) \
    inline double name(int x) { return ::name((double)x); } \
    inline double name(long x) { return ::name((double)x); }
PTXLAB_OF_INTEGERS(ceil) PTXLAB_OF_INTEGERS(exp) PTXLAB_OF_INTEGERS(floor) PTXLAB_OF_INTEGERS(log) PTXLAB_OF_INTEGERS(sqrt)
#undef PTXLAB_OF_INTEGERS

namespace std {
template <class T> struct vector {
    T* items = nullptr;
    size_t count = 0, room = 0;
    vector() {}
    explicit vector(size_t n, T value = T()) { resize(n, value); }
    vector(initializer_list<T> given) { for (const T& each : given) push_back(each); }
    template <class I> vector(I first, I last) { for (; first != last; ++first) push_back(*first); }
    vector(const vector& other) { for (const T& each : other) push_back(each); }
    vector& operator=(const vector& other) {
        count = 0;
        for (const T& each : other) push_back(each);
        return *this;
    }
    void reserve(size_t n) {
        if (n <= room) return;
        T* grown = (T*)malloc(n * sizeof(T));
        for (size_t i = 0; i < count; i++) new (grown + i) T(items[i]);
        items = grown, room = n;
    }
    void push_back(const T& value) {
        T kept = value;
        if (count == room) reserve(2 * room + 4);
        new (items + count++) T(kept);
    }
    template <class... A> void emplace_back(A... a) { push_back(T(a...)); }
    void resize(size_t n, T value = T()) {
        while (count < n) push_back(value);
        count = n;
    }
    void clear() { count = 0; }
    void pop_back() { count--; }
    T& operator[](size_t i) { return items[i]; }
    const T& operator[](size_t i) const { return items[i]; }
    T& at(size_t i) { return items[i]; }
    T& back() { return items[count - 1]; }
    T* data() { return items; }
    const T* data() const { return items; }
    T* begin() { return items; }
    T* end() { return items + count; }
    const T* begin() const { return items; }
    const T* end() const { return items + count; }
    size_t size() const { return count; }
    bool empty() const { return !count; }
};
struct nullopt_t {};
constexpr nullopt_t nullopt{};
template <class T> struct optional {
    T held{};
    bool there = false;
    optional() {}
    optional(nullopt_t) {}
    optional(const T& value) : held(value), there(true) {}
    bool has_value() const { return there; }
    explicit operator bool() const { return there; }
    const T& value() const { return held; }
    const T& operator*() const { return held; }
    const T* operator->() const { return &held; }
    T value_or(T other) const { return there ? held : other; }
};
struct string {
    const char* text;
    string(const char* t = "") : text(t) {}
    const char* c_str() const { return text; }
    template <class T> string operator+(const T&) const { return *this; }
};
inline string operator+(const char* text, const string&) { return text; }
template <class T> string to_string(T) { return "..."; }
template <class... T> struct tuple;
template <> struct tuple<> {};
template <class H, class... T> struct tuple<H, T...> {
    H head;
    tuple<T...> tail;
    tuple(const H& h, const T&... t) : head(h), tail(t...) {}
};
template <class... T> tuple<T...> make_tuple(T... values) { return tuple<T...>(values...); }
struct out { template <class T> const out& operator<<(const T&) const { return *this; } };
constexpr out cout{}, cerr{};
constexpr char endl = '\n';
struct runtime_error { const char* text; runtime_error(string t) : text(t.text) {} };
typedef runtime_error invalid_argument, logic_error, exception;
template <class T> constexpr T max(const T& a, const T& b) { return a < b ? b : a; }
template <class T> constexpr T min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> struct numeric_limits;
template <> struct numeric_limits<float> {
    static constexpr float infinity() { return __builtin_bit_cast(float, 0x7f800000); }
    static constexpr float quiet_NaN() { return __builtin_bit_cast(float, 0x7fc00000); }
    static constexpr float max() { return 3.402823466e38f; }
    static constexpr float lowest() { return -3.402823466e38f; }
    static constexpr float min() { return 1.175494351e-38f; }
    static constexpr float epsilon() { return 1.192092896e-7f; }
};
template <> struct numeric_limits<int> {
    static constexpr int max() { return 2147483647; }
    static constexpr int min() { return -2147483647 - 1; }
    static constexpr int lowest() { return min(); }
};
using ::abs; using ::ceil; using ::cos; using ::exp; using ::floor; using ::fabs; using ::fmax; using ::fmin; using ::log;
using ::pow; using ::round; using ::sin; using ::sqrt; using ::tanh;
template <class T> struct remove_reference { typedef T type; };
template <class T> struct remove_reference<T&> { typedef T type; };
template <class T> struct remove_reference<T&&> { typedef T type; };
template <class T> struct remove_const { typedef T type; };
template <class T> struct remove_const<const T> { typedef T type; };
template <class T> using decay_t = typename remove_const<typename remove_reference<T>::type>::type;
template <class A, class B> struct is_same { static constexpr bool value = false; };
template <class A> struct is_same<A, A> { static constexpr bool value = true; };
template <class A, class B> constexpr bool is_same_v = is_same<A, B>::value;
}  // namespace std

namespace ptxlab {
enum Kind : long { NONE, INTEGER, REAL, BOOLEAN, TENSOR, LIST, OPTIONS, TUPLE };
struct Slot { long kind, bits; };
struct MailBox {
    Slot slots[256];
    char parameters[4096], text[4096];
    long count, length, values;
};
__device__ MailBox* box;

// ---- what is said: a name, and values in slots one after another ----
__noinline__ void begin(const char* name) {
    long n = 0;
    for (; name[n]; n++) box->text[n] = name[n];
    box->count = 0, box->length = n;
}
__noinline__ void put(long kind, long bits) { box->slots[box->count++] = {kind, bits}; }
inline void give(bool v) { put(BOOLEAN, v); }
inline void give(int v) { put(INTEGER, v); }
inline void give(long v) { put(INTEGER, v); }
inline void give(long long v) { put(INTEGER, v); }
inline void give(unsigned v) { put(INTEGER, v); }
inline void give(unsigned long v) { put(INTEGER, (long)v); }
inline void give(double v) { put(REAL, __double_as_longlong(v)); }
inline void give(float v) { give((double)v); }
inline void give(std::nullopt_t) { put(NONE, 0); }
template <class T> void give(const std::vector<T>& v) {
    put(LIST, (long)v.size());
    for (const T& each : v) give(each);
}
template <class T> void give(const std::optional<T>& v) {
    if (v) give(*v); else put(NONE, 0);
}
inline void give_each(const std::tuple<>&) {}
template <class H, class... T> void give_each(const std::tuple<H, T...>& v) {
    give(v.head);
    give_each(v.tail);
}
template <class... T> void give(const std::tuple<T...>& v) {
    put(TUPLE, sizeof...(T));
    give_each(v);
}
__noinline__ void ask() {
    asm volatile("" ::: "memory");
    printf("\x1b");
    asm volatile("" ::: "memory");
}
[[noreturn]] __noinline__ void fail() { ask(); __trap(); }
__noinline__ void say(const char* text) { for (; *text && box->length < 4000; text++) box->text[box->length++] = *text; }
inline void say(const std::string& text) { say(text.text); }
template <class T> void say(const T&) { say("..."); }
template <class... A> [[noreturn]] void failed(const A&... a) {
    begin("!");
    (say(a), ...);
    fail();
}
template <class... A> void check(bool condition, const A&... a) {
    if (!condition) failed(a...);
}
struct Thrown {
    [[noreturn]] void operator=(const std::runtime_error& error) const { failed("", error.text); }
};
constexpr Thrown thrown{};

// ---- what is answered: the slots that the process has filled ----
template <class T> struct Taken;
template <class T> std::decay_t<T> take(long& at) { return Taken<std::decay_t<T>>::of(at); }
__noinline__ long expected(long& at, long kind, const char* what) {
    if (box->slots[at].kind != kind) failed("incompatible function arguments: an argument is not ", what);
    return box->slots[at++].bits;
}
template <> struct Taken<bool> { static bool of(long& at) { return expected(at, BOOLEAN, "a bool"); } };
template <class T> struct TakenInteger {
    static T of(long& at) {
        if (box->slots[at].kind == BOOLEAN) return box->slots[at++].bits;
        return (T)expected(at, INTEGER, "an integer");
    }
};
template <> struct Taken<int> : TakenInteger<int> {};
template <> struct Taken<long> : TakenInteger<long> {};
template <> struct Taken<long long> : TakenInteger<long long> {};
template <> struct Taken<unsigned> : TakenInteger<unsigned> {};
template <> struct Taken<unsigned long> : TakenInteger<unsigned long> {};
template <> struct Taken<double> {
    static double of(long& at) {
        if (box->slots[at].kind == INTEGER) return (double)box->slots[at++].bits;
        return __longlong_as_double(expected(at, REAL, "a number"));
    }
};
template <> struct Taken<float> { static float of(long& at) { return (float)Taken<double>::of(at); } };
template <class T> struct Taken<std::vector<T>> {
    static std::vector<T> of(long& at) {
        std::vector<T> v;
        for (long n = expected(at, LIST, "a list"); n > 0; n--) v.push_back(take<T>(at));
        return v;
    }
};
template <class T> struct Taken<std::optional<T>> {
    static std::optional<T> of(long& at) {
        if (box->slots[at].kind == NONE) return at++, std::nullopt;
        return take<T>(at);
    }
};
template <class R, class... A> __noinline__ R call(const char* name, const A&... a) {
    begin(name);
    (give(a), ...);
    ask();
    long at = 0;
    return take<R>(at);
}

// ---- launches: what is written name<<<grid, block, shared, stream>>>(arguments) comes here ----
struct Launch {
    dim3 grid, block;
    size_t shared;
    template <class... P, class... A> void operator()(void (*kernel)(P...), const A&... a) const {
        static_assert(sizeof...(P) == sizeof...(A), "a kernel is launched with other arguments than it has");
        begin("<<<");
        put(INTEGER, (long)kernel);
        for (unsigned n : {grid.x, grid.y, grid.z, block.x, block.y, block.z}) put(INTEGER, n);
        put(INTEGER, (long)shared);
        size_t at = 0;
        ((at = (at + alignof(P) - 1) / alignof(P) * alignof(P), new (box->parameters + at) P(a), at += sizeof(P)), ...);
        put(INTEGER, (long)at);
        ask();
    }
};
struct Any { template <class T> Any(const T&) {} };
inline Launch launch(dim3 grid, dim3 block, size_t shared = 0, Any = 0) { return {grid, block, shared}; }
}  // namespace ptxlab

namespace c10 {
using std::nullopt;
using std::optional;
enum ScalarType : int { Byte, Char, Short, Int, Long, Half_, Float, Double, Bool = 11, BFloat16_ = 15 };
enum DeviceType : int { CPU, CUDA };
struct Device {
    int kind;
    Device(DeviceType t, int = 0) : kind(t) {}
    Device(const char* name) : kind(name[1] == 'u' ? CUDA : CPU) {}
    DeviceType type() const { return (DeviceType)kind; }
    int index() const { return 0; }
    bool is_cuda() const { return kind == CUDA; }
    bool is_cpu() const { return kind == CPU; }
    bool operator==(const Device& other) const { return kind == other.kind; }
    bool operator!=(const Device& other) const { return kind != other.kind; }
};
struct TensorOptions {
    int type = 255, kind = 255;
    TensorOptions() {}
    TensorOptions(ScalarType t) : type(t) {}
    TensorOptions(DeviceType d) : kind(d) {}
    TensorOptions(Device d) : kind(d.kind) {}
    TensorOptions dtype(ScalarType t) const { TensorOptions o = *this; o.type = t; return o; }
    TensorOptions device(Device d, int = 0) const { TensorOptions o = *this; o.kind = d.kind; return o; }
    template <class T> TensorOptions layout(T) const { return *this; }
    template <class T> TensorOptions memory_format(T) const { return *this; }
    TensorOptions requires_grad(bool) const { return *this; }
};
struct IntArrayRef {
    long items[12];
    size_t count = 0;
    IntArrayRef() {}
    IntArrayRef(std::initializer_list<long> given) { for (long each : given) items[count++] = each; }
    IntArrayRef(const std::vector<long>& given) { for (long each : given) items[count++] = each; }
    long operator[](size_t i) const { return items[i]; }
    size_t size() const { return count; }
    bool empty() const { return !count; }
    long back() const { return items[count - 1]; }
    long front() const { return items[0]; }
    const long* begin() const { return items; }
    const long* end() const { return items + count; }
    const long* data() const { return items; }
    std::vector<long> vec() const { return std::vector<long>(begin(), end()); }
    bool equals(const IntArrayRef& other) const {
        bool same = count == other.count;
        for (size_t i = 0; same && i < count; i++) same = items[i] == other.items[i];
        return same;
    }
    bool operator==(const IntArrayRef& other) const { return equals(other); }
    bool operator!=(const IntArrayRef& other) const { return !equals(other); }
};
typedef IntArrayRef IntList;
enum MemoryFormat { Contiguous, Preserve, ChannelsLast };
inline void give(TensorOptions o) { ptxlab::put(ptxlab::OPTIONS, o.type | o.kind << 8); }
inline void give(ScalarType t) { give(TensorOptions(t)); }
inline void give(DeviceType t) { give(TensorOptions(t)); }
inline void give(Device d) { give(TensorOptions(d)); }
inline void give(MemoryFormat) {}
inline void give(const IntArrayRef& v) { ptxlab::give(v.vec()); }
namespace cuda {
struct CUDAStream { operator cudaStream_t() const { return 0; } cudaStream_t stream() const { return 0; } };
inline CUDAStream getCurrentCUDAStream(int = 0) { return {}; }
inline CUDAStream getDefaultCUDAStream(int = 0) { return {}; }
struct CUDAGuard { template <class T> CUDAGuard(const T&) {} };
struct OptionalCUDAGuard { template <class T> OptionalCUDAGuard(const T&) {} };
}  // namespace cuda
}  // namespace c10

namespace ptxlab {
template <> struct Taken<c10::IntArrayRef> {
    static c10::IntArrayRef of(long& at) { return Taken<std::vector<long>>::of(at); }
};
template <class T> struct Type;
template <c10::ScalarType S> struct TypeOf { static constexpr c10::ScalarType type = S; };
template <class T> struct Type<const T> : Type<T> {};
template <> struct Type<unsigned char> : TypeOf<c10::Byte> {};
template <> struct Type<signed char> : TypeOf<c10::Char> {};
template <> struct Type<short> : TypeOf<c10::Short> {};
template <> struct Type<int> : TypeOf<c10::Int> {};
template <> struct Type<long> : TypeOf<c10::Long> {};
template <> struct Type<long long> : TypeOf<c10::Long> {};
template <> struct Type<float> : TypeOf<c10::Float> {};
template <> struct Type<double> : TypeOf<c10::Double> {};
template <> struct Type<bool> : TypeOf<c10::Bool> {};
}  // namespace ptxlab

namespace at {
using namespace c10;
typedef double Scalar;
template <class T> struct RestrictPtrTraits;
template <class T> struct DefaultPtrTraits;
template <class T, size_t N> struct TensorAccessor {
    T* data_;
    const int* sizes_;
    const int* strides_;
    TensorAccessor<T, N - 1> operator[](long i) const { return {data_ + i * strides_[0], sizes_ + 1, strides_ + 1}; }
    int size(int i) const { return sizes_[i]; }
};
template <class T> struct TensorAccessor<T, 1> {
    T* data_;
    const int* sizes_;
    const int* strides_;
    T& operator[](long i) const { return data_[i * strides_[0]]; }
    int size(int i) const { return sizes_[i]; }
};
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class I = int> struct PackedTensorAccessor {
    T* data_;
    int sizes_[N], strides_[N];
    TensorAccessor<T, N> whole() const { return {data_, sizes_, strides_}; }
    decltype(auto) operator[](long i) const { return whole()[i]; }
    int size(int i) const { return sizes_[i]; }
    T* data() const { return data_; }
};
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = PackedTensorAccessor<T, N, Traits, int>;
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = PackedTensorAccessor<T, N, Traits, long>;

struct Tensor {
    int number = -1;
    bool defined() const { return number >= 0; }
    template <class R, class... A> R asked(const char* name, const A&... a) const { return ptxlab::call<R>(name, *this, a...); }
    long size(long i) const { return asked<long>("size", i); }
    long stride(long i) const { return asked<long>("stride", i); }
    IntArrayRef sizes() const { return asked<IntArrayRef>("size"); }
    IntArrayRef strides() const { return asked<IntArrayRef>("stride"); }
    long numel() const { return asked<long>("numel"); }
    long dim() const { return asked<long>("dim"); }
    long ndimension() const { return dim(); }
    long element_size() const { return asked<long>("element_size"); }
    long itemsize() const { return element_size(); }
    long nbytes() const { return numel() * element_size(); }
    long storage_offset() const { return asked<long>("storage_offset"); }
    bool is_contiguous() const { return asked<bool>("is_contiguous"); }
    bool is_floating_point() const { return asked<bool>("is_floating_point"); }
    bool is_cuda() const { return options().kind == CUDA; }
    bool is_cpu() const { return options().kind == CPU; }
    bool requires_grad() const { return false; }
    TensorOptions options() const;
    Device device() const { return (DeviceType)options().kind; }
    int get_device() const { return is_cuda() ? 0 : -1; }
    ScalarType scalar_type() const { return (ScalarType)options().type; }
    ScalarType dtype() const { return scalar_type(); }
    ScalarType type() const { return scalar_type(); }
    void* data_ptr() const { return (void*)asked<long>("data_ptr"); }
    template <class T> T* data_ptr() const {
        int type = scalar_type();
        if (type != ptxlab::Type<T>::type) ptxlab::failed("expected another scalar type than the tensor has");
        return (T*)data_ptr();
    }
    template <class T> T* data() const { return data_ptr<T>(); }
    template <class T> T* mutable_data_ptr() const { return data_ptr<T>(); }
    template <class T> const T* const_data_ptr() const { return data_ptr<T>(); }
    template <class T> T item() const { return asked<T>("item"); }
    template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
    PackedTensorAccessor<T, N, Traits> packed_accessor32() const {
        PackedTensorAccessor<T, N, Traits> p{data_ptr<T>()};
        IntArrayRef s = sizes(), t = strides();
        for (size_t i = 0; i < N; i++) p.sizes_[i] = s[i], p.strides_[i] = t[i];
        return p;
    }
    template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
    PackedTensorAccessor<T, N, Traits> packed_accessor64() const { return packed_accessor32<T, N, Traits>(); }
    Tensor operator[](long i) const { return asked<Tensor>("select", 0, i); }
#define PTXLAB_LISTED(name) \
    Tensor name(IntArrayRef v) const { return asked<Tensor>(#name, v); }
    PTXLAB_LISTED(view) PTXLAB_LISTED(reshape) PTXLAB_LISTED(permute) PTXLAB_LISTED(expand) PTXLAB_LISTED(repeat)
    PTXLAB_LISTED(new_empty) PTXLAB_LISTED(new_zeros)
#define PTXLAB_METHOD(name) \
    template <class... A> Tensor name(const A&... a) const { return asked<Tensor>(#name, a...); }
    PTXLAB_METHOD(contiguous) PTXLAB_METHOD(clone) PTXLAB_METHOD(detach) PTXLAB_METHOD(to) PTXLAB_METHOD(cuda) PTXLAB_METHOD(cpu)
    PTXLAB_METHOD(transpose) PTXLAB_METHOD(t) PTXLAB_METHOD(unsqueeze) PTXLAB_METHOD(squeeze) PTXLAB_METHOD(flatten)
    PTXLAB_METHOD(narrow) PTXLAB_METHOD(select) PTXLAB_METHOD(view_as) PTXLAB_METHOD(expand_as) PTXLAB_METHOD(zero_) PTXLAB_METHOD(fill_)
    PTXLAB_METHOD(copy_) PTXLAB_METHOD(add) PTXLAB_METHOD(sub) PTXLAB_METHOD(mul) PTXLAB_METHOD(div) PTXLAB_METHOD(add_)
    PTXLAB_METHOD(sub_) PTXLAB_METHOD(mul_) PTXLAB_METHOD(div_) PTXLAB_METHOD(sum) PTXLAB_METHOD(mean) PTXLAB_METHOD(matmul)
    PTXLAB_METHOD(mm) PTXLAB_METHOD(bmm) PTXLAB_METHOD(sqrt) PTXLAB_METHOD(exp) PTXLAB_METHOD(log) PTXLAB_METHOD(abs) PTXLAB_METHOD(neg)
    PTXLAB_METHOD(pow) PTXLAB_METHOD(relu) PTXLAB_METHOD(tanh) PTXLAB_METHOD(sigmoid) PTXLAB_METHOD(softmax) PTXLAB_METHOD(norm)
#undef PTXLAB_METHOD
#undef PTXLAB_LISTED
};
typedef std::vector<Tensor> TensorList;
inline void give(const Tensor& t) {
    if (t.defined()) ptxlab::put(ptxlab::TENSOR, t.number); else ptxlab::put(ptxlab::NONE, 0);
}
}  // namespace at

namespace ptxlab {
template <> struct Taken<at::Tensor> {
    static at::Tensor of(long& at) {
        if (box->slots[at].kind == NONE) return at++, at::Tensor{};
        return {(int)expected(at, TENSOR, "a tensor")};
    }
};
template <> struct Taken<c10::TensorOptions> {
    static c10::TensorOptions of(long& at) {
        long bits = expected(at, OPTIONS, "options");
        c10::TensorOptions o;
        o.type = bits & 255, o.kind = bits >> 8;
        return o;
    }
};
}  // namespace ptxlab

namespace at {
inline TensorOptions Tensor::options() const { return asked<TensorOptions>("options"); }
#define PTXLAB_MADE(name) \
    template <class... A> Tensor name(IntArrayRef size, const A&... a) { return ptxlab::call<Tensor>("torch." #name, size, a...); }
PTXLAB_MADE(empty) PTXLAB_MADE(zeros) PTXLAB_MADE(ones) PTXLAB_MADE(full) PTXLAB_MADE(rand) PTXLAB_MADE(randn)
#undef PTXLAB_MADE
#define PTXLAB_FUNCTION(name) \
    template <class... A> Tensor name(const A&... a) { return ptxlab::call<Tensor>("torch." #name, a...); }
PTXLAB_FUNCTION(empty_like) PTXLAB_FUNCTION(zeros_like) PTXLAB_FUNCTION(ones_like) PTXLAB_FUNCTION(full_like) PTXLAB_FUNCTION(arange)
PTXLAB_FUNCTION(sum) PTXLAB_FUNCTION(mean) PTXLAB_FUNCTION(matmul) PTXLAB_FUNCTION(mm) PTXLAB_FUNCTION(bmm) PTXLAB_FUNCTION(relu)
PTXLAB_FUNCTION(add) PTXLAB_FUNCTION(sub) PTXLAB_FUNCTION(mul) PTXLAB_FUNCTION(div) PTXLAB_FUNCTION(conv1d) PTXLAB_FUNCTION(conv2d)
PTXLAB_FUNCTION(conv3d)
PTXLAB_FUNCTION(softmax) PTXLAB_FUNCTION(sigmoid) PTXLAB_FUNCTION(addmm) PTXLAB_FUNCTION(transpose)
#undef PTXLAB_FUNCTION
inline Tensor cat(const std::vector<Tensor>& v, long d = 0) { return ptxlab::call<Tensor>("torch.cat", v, d); }
inline Tensor stack(const std::vector<Tensor>& v, long d = 0) { return ptxlab::call<Tensor>("torch.stack", v, d); }
#define PTXLAB_OPERATOR(sign, name) \
    template <class T> Tensor operator sign(const Tensor& a, const T& b) { return a.name(b); }
PTXLAB_OPERATOR(+, add) PTXLAB_OPERATOR(-, sub) PTXLAB_OPERATOR(*, mul) PTXLAB_OPERATOR(/, div)
#undef PTXLAB_OPERATOR
inline TensorOptions dtype(ScalarType t) { return t; }
inline TensorOptions device(Device d) { return d; }
constexpr ScalarType kByte = Byte, kUInt8 = Byte, kChar = Char, kInt8 = Char, kShort = Short, kInt16 = Short, kInt = Int, kInt32 = Int,
    kLong = Long, kInt64 = Long, kHalf = Half_, kFloat16 = Half_, kFloat = Float, kFloat32 = Float, kDouble = Double,
    kFloat64 = Double, kBool = Bool, kBFloat16 = BFloat16_;
constexpr DeviceType kCPU = CPU, kCUDA = CUDA;
namespace cuda { using namespace c10::cuda; }
}  // namespace at
namespace torch {
using namespace at;
}

#ifdef PTXLAB_HALF
#include <cuda_bf16.h>
#include <cuda_fp16.h>
namespace c10 {
#define PTXLAB_NARROW(name, native, from, to) \
    struct name { \
        native x; \
        name() {} \
        name(float v) : x(from(v)) {} \
        name(native v) : x(v) {} \
        operator float() const { return to(x); } \
        operator native() const { return x; } \
        name& operator+=(float v) { return *this = name(float(*this) + v); } \
        name& operator*=(float v) { return *this = name(float(*this) * v); } \
    };
PTXLAB_NARROW(Half, __half, __float2half_rn, __half2float)
PTXLAB_NARROW(BFloat16, __nv_bfloat16, __float2bfloat16_rn, __bfloat162float)
#undef PTXLAB_NARROW
}  // namespace c10
namespace ptxlab {
template <> struct Type<c10::Half> : TypeOf<c10::Half_> {};
template <> struct Type<c10::BFloat16> : TypeOf<c10::BFloat16_> {};
template <> struct Type<__half> : TypeOf<c10::Half_> {};
template <> struct Type<__nv_bfloat16> : TypeOf<c10::BFloat16_> {};
}  // namespace ptxlab
#endif

// ---- macros ----
#define TORCH_CHECK(...) ptxlab::check(__VA_ARGS__)
#define AT_ASSERTM TORCH_CHECK
#define AT_ASSERT TORCH_CHECK
#define TORCH_INTERNAL_ASSERT TORCH_CHECK
#define AT_ERROR(...) ptxlab::failed(__VA_ARGS__)
#define TORCH_CHECK_EQ(a, b) TORCH_CHECK((a) == (b), "Check failed: " #a " == " #b)
#define TORCH_CHECK_LE(a, b) TORCH_CHECK((a) <= (b), "Check failed: " #a " <= " #b)
#define TORCH_CHECK_LT(a, b) TORCH_CHECK((a) < (b), "Check failed: " #a " < " #b)
#define TORCH_CHECK_GE(a, b) TORCH_CHECK((a) >= (b), "Check failed: " #a " >= " #b)
#define TORCH_CHECK_GT(a, b) TORCH_CHECK((a) > (b), "Check failed: " #a " > " #b)
#define TORCH_WARN(...)
#define C10_CUDA_KERNEL_LAUNCH_CHECK()
#define C10_CUDA_CHECK(expression) (void)(expression)
#define AT_CUDA_CHECK(expression) (void)(expression)
#define fprintf(stream, ...) printf(__VA_ARGS__)
#define throw ptxlab::thrown =
#define exit(status) ptxlab::failed("exit")
#define abort() ptxlab::failed("abort")
#define cudaGetLastError() cudaSuccess
#define cudaPeekAtLastError() cudaSuccess
#define cudaDeviceSynchronize() cudaSuccess
#define cudaStreamSynchronize(stream) cudaSuccess
#define cudaFuncSetAttribute(...) cudaSuccess
#define cudaFuncSetCacheConfig(...) cudaSuccess
#define cudaSetDevice(device) cudaSuccess
#define cudaStreamCreate(stream) cudaSuccess
#define cudaStreamCreateWithFlags(stream, flags) cudaSuccess
#define cudaStreamDestroy(stream) cudaSuccess
#define cudaDeviceGetAttribute(value, attribute, device) (*(value) = ptxlab::call<int>("attribute", (int)(attribute)), cudaSuccess)
#define cudaGetErrorString(error) "no error"
#define AT_DISPATCH_SWITCH(TYPE, NAME, ...) \
    [&] { switch ((c10::ScalarType)(TYPE)) { __VA_ARGS__ default: ptxlab::failed(NAME, " is not implemented for this type"); } }()
#define PTXLAB_AS(name, type_, ...) case c10::name: { using scalar_t = type_; return __VA_ARGS__(); }
#define PTXLAB_FLOATS(...) PTXLAB_AS(Float, float, __VA_ARGS__) PTXLAB_AS(Double, double, __VA_ARGS__)
#define PTXLAB_INTEGERS(...) \
    PTXLAB_AS(Byte, unsigned char, __VA_ARGS__) PTXLAB_AS(Char, signed char, __VA_ARGS__) PTXLAB_AS(Short, short, __VA_ARGS__) \
    PTXLAB_AS(Int, int, __VA_ARGS__) PTXLAB_AS(Long, long, __VA_ARGS__)
#define PTXLAB_HALVES(...) PTXLAB_AS(Half_, c10::Half, __VA_ARGS__)
#define PTXLAB_BHALVES(...) PTXLAB_AS(BFloat16_, c10::BFloat16, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, PTXLAB_FLOATS(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...) \
    AT_DISPATCH_SWITCH(TYPE, NAME, PTXLAB_FLOATS(__VA_ARGS__) PTXLAB_HALVES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(a, b, TYPE, NAME, ...) \
    AT_DISPATCH_SWITCH(TYPE, NAME, PTXLAB_FLOATS(__VA_ARGS__) PTXLAB_HALVES(__VA_ARGS__) PTXLAB_BHALVES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) \
    AT_DISPATCH_SWITCH(TYPE, NAME, PTXLAB_FLOATS(__VA_ARGS__) PTXLAB_INTEGERS(__VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, PTXLAB_INTEGERS(__VA_ARGS__))

// ---- what Python calls: the functions that a binding names ----
namespace ptxlab {
struct Answer {
    template <class R, class... P> Answer(R (*f)(P...), std::decay_t<P>... given) {
        if constexpr (std::is_same_v<R, void>) {
            f(given...);
            box->count = 0;
            put(NONE, 0);
        } else {
            const std::decay_t<R> result = f(given...);
            box->count = 0;
            give(result);
        }
    }
};
struct Binding {
    bool listing, answered = false;
    template <class F, class... A> Binding& def(const char* name, F f, A...) { return named(name, +f); }
    template <class R, class... P> Binding& named(const char* name, R (*f)(P...)) {
        if (listing) {
            begin("def ");
            say(name);
            ask();
        } else if (!answered && same(name)) {
            answered = true;
            if (box->values != sizeof...(P)) failed("incompatible function arguments: it takes another number of them");
            long at = 0;
            Answer{f, take<P>(at)...};  // braces: from left to right
        }
        return *this;
    }
    __noinline__ static bool same(const char* name) {
        long i = 0;
        while (i < box->length && name[i] == box->text[i]) i++;
        return i == box->length && !name[i];
    }
};
}  // namespace ptxlab
#define PYBIND11_MODULE(name, m) inline void ptxlab_bindings(ptxlab::Binding& m)
#define TORCH_EXTENSION_NAME extension
#pragma nv_diag_default 177
