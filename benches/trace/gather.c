// Kernel of benches/trace/run: prints the seconds of the gather.
#include <stdio.h>
#include <stdlib.h>
#include <omp.h>
int main(int c,char**v){ long n=c>1?atol(v[1]):4000000; int k=c>2?atoi(v[2]):10;
 double*a=malloc(n*8),*b=malloc(n*8),*g=malloc(n*8); int*idx=malloc(n*4);
 unsigned s=1; for(long i=0;i<n;i++){ s=s*1664525u+1013904223u; idx[i]=((unsigned long)s*n)>>32; a[i]=i;b[i]=i;}
 double t=omp_get_wtime();
 for(int r=0;r<k;r++){
 #pragma omp parallel for
 for(long i=0;i<n;i++) g[i]=a[i]*2+b[idx[i]]; }
 fprintf(stderr,"%f %f\n",omp_get_wtime()-t,g[n/2]); }
