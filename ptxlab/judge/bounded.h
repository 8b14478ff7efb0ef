// A number that carries how far from it a right kernel's of f32 may be. A trusted kernel is compiled with it in place of
// float and double: it computes as ptxlab/judge/rounding.py has a reference in NumPy compute, sums in any order among it.
// A number is a sum of terms, of which so many roundings were made, whose magnitudes add up, and that are off by error.
#pragma once

#define PTXLAB_UNIT 5.9604644775390625e-8f
#define PTXLAB_ULP 1.1920928955078125e-7f

struct ptxlab_bounded {
    double value;
    float magnitude, roundings, error;

    ptxlab_bounded() = default;
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
    return {a.value + sign * b.value, a.magnitude + b.magnitude, a.roundings + b.roundings + 1, a.error + b.error};
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
