struct One { char value; };
struct Three { char a, b, c; };
typedef One (*Change)(One, int);
typedef int (*Pick)(int, int);

__device__ __noinline__ One raised(One one, int by) { one.value += by; return one; }
__device__ __noinline__ One lowered(One one, int by) { one.value -= by; return one; }
__device__ __noinline__ int added(int a, int b) { return a + b; }
__device__ __noinline__ int taken(int a, int b) { return a - b; }
__device__ __noinline__ int sum(One one, Three three) { return one.value + 2 * three.a + three.c; }
__device__ Pick picks[2] = {added, taken};

struct Base { int m; __device__ virtual int of(int x) { return x; } };
struct Twice : Base { __device__ int of(int x) override { return 2 * x + m; } };
struct Thrice : Base { __device__ int of(int x) override { return 3 * x - m; } };

// Structs of one and three bytes by value; calls through a pointer, a table and virtual functions.
extern "C" __global__ void records(One one, Three three, int *out, int which) {
  int i = threadIdx.x;
  Change change = which ? raised : lowered;
  Twice twice;
  Thrice thrice;
  twice.m = 5;
  thrice.m = 7;
  Base *base = i & 1 ? static_cast<Base *>(&twice) : static_cast<Base *>(&thrice);
  out[i] = sum(change(one, i), three) + picks[i % 2](100, i) + base->of(i);
}
