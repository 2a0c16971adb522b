import threading, multiprocessing as mp
def f(x): return sum(i*i for i in range(x*1000))
r=[0]*8
def w(i): r[i]=f(i)
ts=[threading.Thread(target=w,args=(i,)) for i in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
print(r)
if __name__=='__main__':
    with mp.Pool(4) as p: print(p.map(f, range(20)))
