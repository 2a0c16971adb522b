// Vectors from functions that are inlined into main, the standard library inlined into them.
#[inline(always)]
fn make_mass(n: usize) -> Vec<f64> {
    vec![1.0; n]
}
#[inline(always)]
fn make_force(n: usize) -> Vec<f64> {
    let mut force = Vec::with_capacity(n);
    force.resize(n, 0.5);
    force
}
#[inline(never)]
fn make_place(n: usize) -> Vec<f64> {
    (0..n).map(|i| i as f64).collect()
}
fn main() {
    let n = std::env::args().count() * 262144;
    let (mut mass, mut force, mut place) = (make_mass(n), make_force(n), make_place(n));
    for _ in 0..150 {
        for i in 0..n {
            mass[i] += force[i];
            force[i] = force[i] * 0.5 + place[i];
            place[i] += mass[i];
        }
    }
    println!("{}", mass[3] + force[4] + place[5]);
}
