// Kernel of benches/trace/run: prints the seconds of the stencil.
#include <stdio.h>
#include <stdlib.h>
#include <omp.h>
int main(int c,char**v){ long n=c>1?atol(v[1]):160; int k=c>2?atoi(v[2]):20;
 double*a=malloc(n*n*n*8),*b=malloc(n*n*n*8);
 #pragma omp parallel for
 for(long i=0;i<n*n*n;i++){a[i]=i;b[i]=i;}
 double t=omp_get_wtime();
 for(int r=0;r<k;r++){
 #pragma omp parallel for
 for(long z=1;z<n-1;z++)for(long y=1;y<n-1;y++)for(long x=1;x<n-1;x++){ long i=(z*n+y)*n+x;
   b[i]=0.4*a[i]+0.1*(a[i-1]+a[i+1]+a[i-n]+a[i+n]+a[i-n*n]+a[i+n*n]);}
 double*q=a;a=b;b=q; }
 fprintf(stderr,"%f %f\n",omp_get_wtime()-t,a[n*n*n/2]); }
