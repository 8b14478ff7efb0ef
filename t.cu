
extern "C" __global__ void odd(float*x,int n){ if(!(blockIdx.x&1))return; float s=threadIdx.x; for(int i=0;i<n;i++) s=s*1.0001f+1.0f; x[blockIdx.x*256+threadIdx.x]=s;}
extern "C" __global__ void even(float*x,int n){ if((blockIdx.x&1))return; float s=threadIdx.x; for(int i=0;i<n;i++) s=s*1.0001f+1.0f; x[blockIdx.x*256+threadIdx.x]=s;}
extern "C" __global__ void causal(float*x,float*y,int n){ int q=blockIdx.x; float s=0; for(int t=0;t<=q;t++) s+=x[(t*128+threadIdx.x)]*y[t]; x[(blockIdx.y*gridDim.x+q)*128+threadIdx.x]=s;}
extern "C" __global__ void inplace(float*y,float*x,long n){ long i=blockIdx.x*256L+threadIdx.x; if(i<n) y[i]=2*x[i]+y[i];}
extern "C" __global__ void part(float4*y,const float4*x){ long i=blockIdx.x*256L+threadIdx.x; float4 v=x[i]; if(v.x==1.2345f) y[0]=v;}
extern "C" __global__ void twice(float*y,const float*x,long n){ long i=blockIdx.x*256L+threadIdx.x; float s=0; for(int p=0;p<2;p++) for(long j=i;j<n;j+=gridDim.x*256L) s+=x[j]; y[i]=s;}
extern "C" __global__ void once(float*y,const float*x,long n){ long i=blockIdx.x*256L+threadIdx.x; float s=0; for(long j=i;j<n;j+=gridDim.x*256L) s+=x[j]; y[i]=s;}
extern "C" __global__ void million(float*x,int n){ float s=threadIdx.x; for(int i=0;i<n;i++) s=s*1.0001f+1.0f; x[threadIdx.x]=s;}
struct P{float*a; float*b; int n;};
extern "C" __global__ void st(P p){ int i=blockIdx.x*256+threadIdx.x; if(i<p.n) p.a[i]=p.b[i]*2;}
