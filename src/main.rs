//! The `numamma` command.

fn main() -> std::process::ExitCode {
    numamma::cli::main()
}
