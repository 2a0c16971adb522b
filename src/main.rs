//! The `numamma` command.

#[global_allocator]
static ALLOCATOR: numamma::cli::OrExit = numamma::cli::OrExit;

fn main() -> std::process::ExitCode {
    numamma::cli::main()
}
