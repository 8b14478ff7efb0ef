// Control flow that splits warps in every way: loops, early returns, switches, recursion, pointers to functions.

extern "C" __global__ void collatz(const unsigned *in, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long value = in[i];
    unsigned steps = 0;
    while (value > 1) {
        value = value % 2 ? 3 * value + 1 : value / 2;
        ++steps;
    }
    out[i] = steps;
}

__device__ int classify(int value) {
    for (int divisor = 2; divisor < 40; ++divisor) {
        if (value % divisor == 0)
            return divisor;
        if (divisor * divisor > value)
            break;
        if (divisor == 2)
            continue;
        ++divisor;
    }
    return -1;
}

extern "C" __global__ void divisors(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = classify(in[i]);
}

extern "C" __global__ void interpreter(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int a = in[i], b = i, code = in[i];
    for (int pc = 0; pc < 12; ++pc) {
        switch ((code >> (2 * pc)) & 15) {
        case 0: a += b; break;
        case 1: a -= b; break;
        case 2: a *= 3; break;
        case 3: a ^= b; break;
        case 4: b += 7; break;
        case 5: b = -b; break;
        case 6: a = a > b ? a : b; break;
        case 7: a = a < b ? a : b; break;
        case 8: a <<= 1; break;
        case 9: a >>= 1; break;
        case 10: { int t = a; a = b; b = t; break; }
        case 11: pc += 1; break;
        case 12: a = ~a; break;
        case 13: if (a == 0) goto done; break;
        default: a += pc;
        }
    }
done:
    out[i] = a ^ b;
}

__device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0)
        return n + 1;
    if (n == 0)
        return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

extern "C" __global__ void ackermanns(int *out) {
    out[threadIdx.x] = ackermann(threadIdx.x % 3, threadIdx.x / 3);
}

// Each activation has an array of its own that outlives the recursive calls.
__device__ __noinline__ long long permutations(int *items, int n, int depth) {
    if (depth == n) {
        long long value = 0;
        for (int i = 0; i < n; ++i)
            value = 10 * value + items[i];
        return value * value % 1000003;
    }
    int saved[5];
    long long sum = 0;
    for (int i = depth; i < n; ++i) {
        for (int k = 0; k < n; ++k)
            saved[k] = items[k];
        int t = items[i];
        items[i] = items[depth];
        items[depth] = t;
        sum += permutations(items, n, depth + 1);
        for (int k = 0; k < n; ++k)
            items[k] = saved[k];
    }
    return sum;
}

extern "C" __global__ void permute(long long *out, int largest) {
    int items[5];
    int n = threadIdx.x % largest + 1;
    for (int k = 0; k < n; ++k)
        items[k] = k + 1 + threadIdx.x / largest;
    out[threadIdx.x] = permutations(items, n, 0);
}

struct Complex {
    double re, im;
    int steps;
};

__device__ __noinline__ Complex step(Complex z, double re, double im) {
    Complex next;
    next.re = z.re * z.re - z.im * z.im + re;
    next.im = 2 * z.re * z.im + im;
    next.steps = z.steps + 1;
    return next;
}

extern "C" __global__ void mandelbrot(int *out, int width, int height, int limit) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    Complex z = {0, 0, 0};
    while (z.steps < limit && z.re * z.re + z.im * z.im <= 4)
        z = step(z, -2.0 + 3.0 * x / width, -1.0 + 2.0 * y / height);
    out[y * width + x] = z.steps;
}

typedef int (*Operation)(int, int);
__device__ __noinline__ int plus(int a, int b) { return a + b; }
__device__ __noinline__ int times(int a, int b) { return a * b; }
__device__ __noinline__ int power(int a, int b) {
    int result = 1;
    for (int i = 0; i < b; ++i)
        result *= a;
    return result;
}
__device__ Operation table[] = {plus, times, power};
__constant__ Operation fixed[] = {power, plus, times};

extern "C" __global__ void pointers(int *out) {
    int i = threadIdx.x;
    out[i] = table[i % 3](i, i % 7) + 100000 * fixed[i % 3](2, i % 5);
}

struct Shape {
    __device__ virtual int area(int k) const { return k; }
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    int side;
    __device__ Square(int s) : side(s) {}
    __device__ int area(int k) const override { return side * side + k; }
};
struct Bar : Shape {
    int a, b;
    __device__ Bar(int s) : a(s), b(s + 1) {}
    __device__ int area(int k) const override { return a * b * k; }
};

extern "C" __global__ void virtuals(int *out) {
    int i = threadIdx.x;
    Square square(i);
    Bar bar(i);
    const Shape *shapes[2] = {&square, &bar};
    out[i] = shapes[i & 1]->area(i % 4);
}
