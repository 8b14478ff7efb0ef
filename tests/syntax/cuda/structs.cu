// Structs by value, a parameter of 128 aligned bytes, and the directives of a kernel's launch.

struct Inner { double d; short s; };
struct alignas(16) Outer { Inner inner[3]; float4 v; char tail[5]; };
struct alignas(128) Map { unsigned char bytes[128]; };
__device__ __noinline__ Outer shuffle(Outer a, int k) { a.inner[k % 3].s += a.tail[k]; return a; }
extern "C" __global__ void __launch_bounds__(128, 2) structs(const __grid_constant__ Map map, Outer o,
                                                            Outer *out, int k) {
    out[threadIdx.x] = shuffle(o, k);
    out[threadIdx.x].tail[0] = map.bytes[k];
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __maxnreg__(64) clustered(int *p) { *p = 1; }
