/** Eight threads that allocate; run from source by `java Threads.java`. */
public class Threads {
    public static void main(String[] args) throws Exception {
        Thread[] team = new Thread[8];
        long[] sums = new long[team.length];
        for (int t = 0; t < team.length; t++) {
            int me = t;
            team[t] = new Thread(() -> {
                for (int i = 0; i < 200_000; i++) sums[me] += new int[] {i, me}[1] + i % 7;
            });
            team[t].start();
        }
        for (Thread thread : team) thread.join();
        System.out.println(java.util.Arrays.toString(sums));
    }
}
