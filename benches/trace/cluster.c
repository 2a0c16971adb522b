// Kernel of benches/trace/run: prints the seconds of k-means with 16 centres of 8 coordinates.
#include <stdio.h>
#include <stdlib.h>
#include <omp.h>
enum { K=16, D=8 };
int main(int c,char**v){ long n=c>1?atol(v[1]):400000; int rounds=c>2?atoi(v[2]):20;
 double*p=malloc(n*D*8),*centre=malloc(K*D*8); int*of=malloc(n*4);
 unsigned s=1; for(long i=0;i<n*D;i++){ s=s*1664525u+1013904223u; p[i]=s>>16; }
 for(int i=0;i<K*D;i++)centre[i]=p[i];
 double t=omp_get_wtime();
 for(int r=0;r<rounds;r++){
 #pragma omp parallel for
 for(long i=0;i<n;i++){ double least=1e300; int best=0;
   for(int k=0;k<K;k++){ double sum=0; for(int d=0;d<D;d++){ double x=p[i*D+d]-centre[k*D+d]; sum+=x*x; } if(sum<least){least=sum;best=k;} }
   of[i]=best; }
 double sums[K*D]={0}; long count[K]={0};
 for(long i=0;i<n;i++){ count[of[i]]++; for(int d=0;d<D;d++)sums[of[i]*D+d]+=p[i*D+d]; }
 for(int i=0;i<K*D;i++)if(count[i/D])centre[i]=sums[i]/count[i/D]; }
 fprintf(stderr,"%f %f\n",omp_get_wtime()-t,centre[3]); }
