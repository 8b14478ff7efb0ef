// A library with a CUDA runtime inside, as an extension module of Python has it: every call of that fails.
#define INSIDE __attribute__((visibility("hidden"), noinline, aligned(16)))

INSIDE int cudaGetDeviceCount(int *count) { *count = -1; return 46; }
INSIDE int cudaMadeUp(void) { volatile int most[4] = {46, 46, 46, 46}; return most[0]; }
INSIDE int cudaGetLastError(void) { volatile int most[4] = {46, 46, 46, 46}; return most[0]; }
INSIDE int cudamine(void) { volatile int most[4] = {3, 3, 3, 3}; return most[0]; }

static int registrations;
INSIDE void _ZL24__sti____cudaRegisterAllv(void) { registrations++; }
__attribute__((constructor)) static void as_it_is_loaded(void) { _ZL24__sti____cudaRegisterAllv(); }

int devices(void) { int count; return 100 * cudaGetDeviceCount(&count) + count; }
int made_up(void) { return cudaMadeUp(); }
int last(void) { return cudaGetLastError(); }
int mine(void) { return cudamine(); }
int registered(void) { return registrations; }
