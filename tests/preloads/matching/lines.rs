fn main() {
    let boxed = vec![1_u8; 100 << 10].into_boxed_slice(); // line 2
    let zeroes = vec![0_u8; 200 << 10]; // line 3
    let mut grown: Vec<u8> = Vec::with_capacity(300 << 10); // line 4
    grown.resize(300 << 10, 7);
    let sum = u32::from(boxed[9]) + u32::from(zeroes[9]) + u32::from(grown[9]);
    println!("{}", if std::hint::black_box(sum) == 8 { "ok" } else { "odd" });
}
