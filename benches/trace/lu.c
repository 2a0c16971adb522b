// Kernel of benches/trace/run: prints the seconds of an LU decomposition without pivoting.
#include <stdio.h>
#include <stdlib.h>
#include <omp.h>
int main(int c,char**v){ long n=c>1?atol(v[1]):1800;
 double*a=malloc(n*n*8);
 for(long i=0;i<n;i++)for(long j=0;j<n;j++)a[i*n+j]=i==j?n:1.0/(1+i+j);
 double t=omp_get_wtime();
 for(long k=0;k<n;k++){
 #pragma omp parallel for
 for(long i=k+1;i<n;i++){ double f=a[i*n+k]/=a[k*n+k]; for(long j=k+1;j<n;j++)a[i*n+j]-=f*a[k*n+j]; } }
 fprintf(stderr,"%f %f\n",omp_get_wtime()-t,a[n*n-1]); }
