// A number that carries how far from it a right kernel's of f32 may be. A trusted kernel is compiled with it in place of
// float and double: it computes as ptxlab/judge/rounding.py has a reference in NumPy compute, sums in any order among it.
// A number is a sum of terms, of which so many roundings were made, whose magnitudes add up, and that are off by error.
// A program with half or bf16 defines PTXLAB_TERM: as how many roundings a term of a sum counts on a tensor core.
#pragma once

#define PTXLAB_UNIT 5.9604644775390625e-8f
#define PTXLAB_ULP 1.1920928955078125e-7f
#ifdef PTXLAB_TERM
#define half ptxlab_half
#define __half ptxlab_half
#define nv_bfloat16 ptxlab_bf16
#define __nv_bfloat16 ptxlab_bf16
#else
#define PTXLAB_TERM 1
#endif

template <int fraction_bits, int smallest_exponent> struct ptxlab_narrow;

struct ptxlab_bounded {
    double value;
    float magnitude, roundings, error;

    ptxlab_bounded() = default;
    template <int f, int e> ptxlab_bounded(ptxlab_narrow<f, e> x) : ptxlab_bounded((const ptxlab_bounded&)x) {}
    template <class T> ptxlab_bounded(T number) : value(number), roundings(0) {
        error = (float)fabs(value - (double)(float)value);
        magnitude = (float)fabs(value);
    }
    ptxlab_bounded(double value, float magnitude, float roundings, float error)
        : value(value), magnitude(magnitude), roundings(roundings), error(error) {}

    __device__ float off() const {
        float n = roundings * PTXLAB_UNIT;  // Higham, "Accuracy and Stability of Numerical Algorithms", 3.1
        return roundings > 0 ? 1.001f * (error + n / (1 - n) * magnitude) + 1e-45f : error;
    }
    bool exact() const { return off() == 0; }
    template <class T> explicit operator T() const {
        decided(exact());
        return (T)value;
    }
    static void decided(bool known) {
        if (!known) printf("\x1b");
    }
    static ptxlab_bounded whole(double value, float error) { return {value, (float)fabs(value), 0, error}; }
};

__device__ inline ptxlab_bounded ptxlab_plus(ptxlab_bounded a, ptxlab_bounded b, double sign) {
    return {a.value + sign * b.value, a.magnitude + b.magnitude, a.roundings + b.roundings + PTXLAB_TERM, a.error + b.error};
}
__device__ inline ptxlab_bounded operator+(ptxlab_bounded a, ptxlab_bounded b) { return ptxlab_plus(a, b, 1); }
__device__ inline ptxlab_bounded operator-(ptxlab_bounded a, ptxlab_bounded b) { return ptxlab_plus(a, b, -1); }
__device__ inline ptxlab_bounded operator-(ptxlab_bounded a) { return {-a.value, a.magnitude, a.roundings, a.error}; }
__device__ inline ptxlab_bounded operator*(ptxlab_bounded a, ptxlab_bounded b) {
    double value = a.value * b.value;
    float x = a.off(), y = b.off(), size = (float)fabs(value);
    float error = (float)fabs(a.value) * y + (float)fabs(b.value) * x + x * y;
    return ptxlab_bounded::whole(value, error + PTXLAB_UNIT * (size + error) + 1e-45f);
}
__device__ inline ptxlab_bounded operator/(ptxlab_bounded a, ptxlab_bounded b) {
    double value = a.value / b.value;
    float size = (float)fabs(value), least = (float)fabs(b.value) - b.off();
    float error = least > 0 ? (a.off() + size * b.off()) / least : __int_as_float(0x7f800000);
    return ptxlab_bounded::whole(value, error + 2 * PTXLAB_ULP * (size + error) + 1e-45f);
}
#define PTXLAB_ASSIGNED(sign) \
    __device__ inline ptxlab_bounded& operator sign##=(ptxlab_bounded& a, ptxlab_bounded b) { return a = a sign b; }
PTXLAB_ASSIGNED(+) PTXLAB_ASSIGNED(-) PTXLAB_ASSIGNED(*) PTXLAB_ASSIGNED(/)
#undef PTXLAB_ASSIGNED

// A number of fewer digits, rounded as it is stored; what two of them make is one again.
template <int fraction_bits, int smallest_exponent> struct ptxlab_narrow : ptxlab_bounded {
    ptxlab_narrow() = default;
    template <class T> ptxlab_narrow(T number) : ptxlab_bounded(rounded(number)) {}
    static ptxlab_bounded rounded(ptxlab_bounded x) {
        int exponent = x.value == 0 ? smallest_exponent : max(ilogb(x.value), smallest_exponent);
        double ulp = ldexp(1.0, exponent - fraction_bits);
        if (x.exact() && rint(x.value / ulp) * ulp == x.value) return x;
        float size = (float)fabs(x.value) + x.off(), half_ulp = (float)ldexp(0.5, -fraction_bits);
        return whole(x.value, x.off() + half_ulp * size + (float)ldexp(0.5, smallest_exponent - fraction_bits));
    }
};
typedef ptxlab_narrow<10, -14> ptxlab_half;
typedef ptxlab_narrow<7, -126> ptxlab_bf16;
#define PTXLAB_NARROW(sign, name) \
    template <int f, int e> __device__ ptxlab_narrow<f, e> operator sign(ptxlab_narrow<f, e> a, ptxlab_narrow<f, e> b) { \
        return (ptxlab_bounded)a sign(ptxlab_bounded) b; \
    } \
    template <int f, int e> __device__ ptxlab_narrow<f, e>& operator sign##=(ptxlab_narrow<f, e>& a, ptxlab_bounded b) { \
        return a = (ptxlab_bounded)a sign b; \
    } \
    template <int f, int e> __device__ ptxlab_narrow<f, e> name(ptxlab_narrow<f, e> a, ptxlab_narrow<f, e> b) { return a sign b; }
PTXLAB_NARROW(+, __hadd) PTXLAB_NARROW(-, __hsub) PTXLAB_NARROW(*, __hmul) PTXLAB_NARROW(/, __hdiv)
#undef PTXLAB_NARROW
template <int f, int e>
__device__ ptxlab_narrow<f, e> __hfma(ptxlab_narrow<f, e> a, ptxlab_narrow<f, e> b, ptxlab_narrow<f, e> c) {
    return (ptxlab_bounded)a * (ptxlab_bounded)b + (ptxlab_bounded)c;
}
__device__ inline ptxlab_bounded __half2float(ptxlab_half x) { return x; }
__device__ inline ptxlab_bounded __bfloat162float(ptxlab_bf16 x) { return x; }
__device__ inline ptxlab_half __float2half(ptxlab_bounded x) { return x; }
__device__ inline ptxlab_half __float2half_rn(ptxlab_bounded x) { return x; }
__device__ inline ptxlab_bf16 __float2bfloat16(ptxlab_bounded x) { return x; }
__device__ inline ptxlab_bf16 __float2bfloat16_rn(ptxlab_bounded x) { return x; }

// Terms may come in any order; what stands there meanwhile depends on it, and is not returned.
__device__ inline void atomicAdd(ptxlab_bounded* sum, ptxlab_bounded x) {
    ::atomicAdd(&sum->value, x.value);
    ::atomicAdd(&sum->magnitude, x.magnitude);
    ::atomicAdd(&sum->roundings, x.roundings + PTXLAB_TERM);
    ::atomicAdd(&sum->error, x.error);
}
template <int f, int e> void atomicAdd(ptxlab_narrow<f, e>*, ptxlab_bounded) = delete;

// Where rounding decides which of two is larger, a right kernel may go another way.
#define PTXLAB_COMPARED(sign) \
    __device__ inline bool operator sign(ptxlab_bounded a, ptxlab_bounded b) { \
        float off = a.off() + b.off(); \
        ptxlab_bounded::decided(off == 0 || fabs(a.value - b.value) > off || a.value != a.value || b.value != b.value); \
        return a.value sign b.value; \
    }
PTXLAB_COMPARED(<) PTXLAB_COMPARED(>) PTXLAB_COMPARED(<=) PTXLAB_COMPARED(>=) PTXLAB_COMPARED(==) PTXLAB_COMPARED(!=)
#undef PTXLAB_COMPARED

__device__ inline ptxlab_bounded ptxlab_chosen(double value, ptxlab_bounded a, ptxlab_bounded b) {
    return ptxlab_bounded::whole(value, ::fmaxf(a.off(), b.off()));
}
#define PTXLAB_CHOSEN(name, function) \
    __device__ inline ptxlab_bounded name(ptxlab_bounded a, ptxlab_bounded b) { return ptxlab_chosen(::function(a.value, b.value), a, b); }
PTXLAB_CHOSEN(fmaxf, fmax) PTXLAB_CHOSEN(fmax, fmax) PTXLAB_CHOSEN(fminf, fmin) PTXLAB_CHOSEN(fmin, fmin)
PTXLAB_CHOSEN(max, fmax) PTXLAB_CHOSEN(min, fmin)
#undef PTXLAB_CHOSEN
__device__ inline ptxlab_bounded fabsf(ptxlab_bounded x) { return ptxlab_bounded::whole(::fabs(x.value), x.off()); }
__device__ inline ptxlab_bounded fabs(ptxlab_bounded x) { return fabsf(x); }
__device__ inline ptxlab_bounded fmaf(ptxlab_bounded a, ptxlab_bounded b, ptxlab_bounded c) { return a * b + c; }
__device__ inline ptxlab_bounded fma(ptxlab_bounded a, ptxlab_bounded b, ptxlab_bounded c) { return a * b + c; }
__device__ inline ptxlab_bounded __fdividef(ptxlab_bounded a, ptxlab_bounded b) { return a / b; }

// A monotone function: off by what its argument may change it, by units in the last place, by units for each unit of the
// argument, and, the fast ones, by so much however small the result is. The columns are those of rounding.py.
#define PTXLAB_FUNCTION(name, units, argument, absolute) \
    __device__ inline ptxlab_bounded name(ptxlab_bounded x) { \
        double value = ::name(x.value), off = x.off(); \
        double above = ::fabs(::name(x.value + off) - value), below = ::fabs(::name(x.value - off) - value); \
        float error = off > 0 ? (float)::fmax(above, below) : 0.0f, size = (float)::fabs(value); \
        error += PTXLAB_ULP * ((units) + (argument) * (float)::fabs(x.value)) * size + (absolute); \
        return ptxlab_bounded::whole(value, error + PTXLAB_UNIT * (size + error) + 1e-45f); \
    } \
    __device__ inline ptxlab_bounded name##f(ptxlab_bounded x) { return name(x); }
PTXLAB_FUNCTION(exp, 2, 1.173f, 0) PTXLAB_FUNCTION(exp2, 2, 0, 0) PTXLAB_FUNCTION(log, 2, 0, 3.6e-7f) PTXLAB_FUNCTION(log2, 2, 0, 2.4e-7f)
PTXLAB_FUNCTION(tanh, 3, 1.173f, 4.8e-7f) PTXLAB_FUNCTION(sqrt, 1, 0, 0) PTXLAB_FUNCTION(rsqrt, 2, 0, 0) PTXLAB_FUNCTION(erf, 2, 0, 0)
#undef PTXLAB_FUNCTION
__device__ inline ptxlab_bounded __expf(ptxlab_bounded x) { return exp(x); }
__device__ inline ptxlab_bounded __logf(ptxlab_bounded x) { return log(x); }

#define PTXLAB_SHUFFLED(name, Lane) \
    __device__ inline ptxlab_bounded name(unsigned mask, ptxlab_bounded x, Lane lane, int width = 32) { \
        return {::name(mask, x.value, lane, width), ::name(mask, x.magnitude, lane, width), \
                ::name(mask, x.roundings, lane, width), ::name(mask, x.error, lane, width)}; \
    }
PTXLAB_SHUFFLED(__shfl_sync, int) PTXLAB_SHUFFLED(__shfl_xor_sync, int)
PTXLAB_SHUFFLED(__shfl_down_sync, unsigned) PTXLAB_SHUFFLED(__shfl_up_sync, unsigned)
#undef PTXLAB_SHUFFLED

#undef INFINITY
#undef NAN
#define INFINITY ptxlab_bounded(__longlong_as_double(0x7ff0000000000000ll))
#define NAN ptxlab_bounded(__longlong_as_double(0x7ff8000000000000ll))
#define float ptxlab_bounded
#define double ptxlab_bounded
