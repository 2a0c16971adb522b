//! Threads that allocate, a channel between them, and a panic that is caught.
fn main() {
    let (send, receive) = std::sync::mpsc::channel();
    let team: Vec<_> = (0..4)
        .map(|t: u64| {
            let send = send.clone();
            std::thread::spawn(move || (0..5000).for_each(|i| send.send(vec![t + i; 1 + i as usize % 50]).unwrap()))
        })
        .collect();
    drop(send);
    println!("{}", receive.iter().map(|v| v.iter().sum::<u64>()).sum::<u64>());
    team.into_iter().for_each(|t| t.join().unwrap());
    let caught = std::panic::catch_unwind(|| drop(Box::new([0_u8; 100_000]).iter().map(|b| 1 / b).sum::<u8>()));
    std::process::exit(if caught.is_err() { 9 } else { 1 });
}
