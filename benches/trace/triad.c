// Kernel of benches/trace/run: prints the seconds of the triad.
#include <stdio.h>
#include <stdlib.h>
#include <omp.h>
int main(int c,char**v){ long n=c>1?atol(v[1]):4000000; int k=c>2?atoi(v[2]):20;
 double*a=malloc(n*8),*b=malloc(n*8),*d=malloc(n*8);
 #pragma omp parallel for
 for(long i=0;i<n;i++){a[i]=0;b[i]=i;d[i]=2*i;}
 double t=omp_get_wtime();
 for(int r=0;r<k;r++){
 #pragma omp parallel for
 for(long i=0;i<n;i++) a[i]=b[i]+3.0*d[i]; }
 fprintf(stderr,"%f %f\n",omp_get_wtime()-t,a[n/2]); }
