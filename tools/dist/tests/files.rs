//! Manual pages and completions follow the command line; binaries are held against their platform.

use clap::CommandFactory;
use llmcc_cli::args::Args;
use llmcc_dist::platform::Needs;
use llmcc_dist::{pages, paths};
use std::fs;
use std::process::Command;

#[test]
fn every_subcommand_has_a_page_and_is_completed() {
    let folder = tempfile::tempdir().expect("a folder");
    let share = folder.path();
    pages::manual(share).expect("written");
    pages::completions(share).expect("written");
    let read = |path: &str| fs::read_to_string(share.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let completions = [
        read("bash-completion/completions/llmcc"),
        read("zsh/site-functions/_llmcc"),
        read("fish/vendor_completions.d/llmcc.fish"),
    ];
    let main = read("man/man1/llmcc.1");
    for hidden in Args::command().get_subcommands().filter(|c| c.is_hide_set()) {
        let name = hidden.get_name();
        assert!(!share.join(format!("man/man1/llmcc-{name}.1")).exists(), "{name}");
        let offered = [format!(",{name})"), format!("'{name}:"), format!("-a \"{name}\"")];
        completions.iter().for_each(|text| assert!(!offered.iter().any(|o| text.contains(o)), "{name}"));
    }
    for command in Args::command().get_subcommands().filter(|c| !c.is_hide_set()) {
        let name = command.get_name();
        let page = read(&format!("man/man1/llmcc-{name}.1"));
        assert!(page.contains("SYNOPSIS") && main.contains(&format!("llmcc\\-{name}(1)")), "{name}: {main}");
        completions.iter().for_each(|text| assert!(text.contains(name), "{name}"));
    }
    assert!(read("man/man1/llmcc-compile.1").contains("\\-\\-error\\-budget"));
    assert!(main.contains(env!("CARGO_PKG_VERSION")) && !main.contains("commit"), "pages depend on no commit: {main}");
    let script = share.join("bash-completion/completions/llmcc");
    let checked = Command::new("bash").arg("-n").arg(script).status().expect("bash runs");
    assert!(checked.success());
}

/// The program that runs this test, and what it would need on an older system.
#[test]
fn binaries_are_held_against_their_platform() {
    let needs = Needs::of(&std::env::current_exe().expect("a program")).expect("an ELF file");
    assert!(needs.libraries.contains("libc.so.6"), "{needs:?}");
    assert!(needs.versions.iter().any(|v| v.starts_with("GLIBC_2.")), "{needs:?}");
    let with = |libraries: &[&str], versions: &[&str]| {
        let owned = |all: &[&str]| all.iter().map(|s| (*s).to_owned()).collect();
        Needs { libraries: owned(libraries), versions: owned(versions) }.beyond()
    };
    assert!(with(&["libc.so.6"], &["GLIBC_2.2.5", "GLIBC_2.34", "GCC_3.0"]).is_empty());
    assert_eq!(
        with(&["libLLVM.so.22.1"], &["GLIBC_2.35", "GLIBC_3.0"]),
        ["libLLVM.so.22.1", "GLIBC_2.35", "GLIBC_3.0"]
    );
    assert_eq!(with(&[], &["GLIBC_ABI_DT_RELR"]), ["GLIBC_ABI_DT_RELR"]);
    assert!(Needs::parse(b"no ELF file").is_err());
}

/// Packages name no folder of the machine that built them.
#[test]
fn binaries_name_no_folder_of_their_builder() {
    let folders = ["/home/me/llmcc".into(), "/home/me/.cargo".into()];
    let found = |text: &str| paths::inside(text.as_bytes(), &folders).into_iter().collect::<Vec<_>>();
    assert_eq!(
        found("a\0/home/me/.cargo/registry/x.rs:3\0\"/home/me/llmcc/ir/a.rs\"/home/me/llmcc/ir/a.rs\0"),
        ["/home/me/.cargo/registry/x.rs", "/home/me/llmcc/ir/a.rs"]
    );
    assert!(found("/home/me/llmcc2/a.rs /home/me/.cargo cargo/registry/x.rs llmcc/ir/a.rs").is_empty());
    // A small program, built with the flags of packages, is accepted.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (source, program) = (folder.path().join("a.rs"), folder.path().join("a"));
    fs::write(&source, "fn main() { let all = std::env::args().collect::<Vec<_>>(); println!(\"{}\", all[3]) }")
        .unwrap();
    let flags = Command::new("sh").arg("flags.sh").current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("it runs");
    let flags = String::from_utf8(flags.stdout).expect("text");
    let checked = |flags: &str| {
        let mut rustc = Command::new("rustc");
        rustc.args(flags.split_whitespace()).args(["-O", "-C", "strip=symbols", "-o"]).args([&program, &source]);
        assert!(rustc.status().expect("it runs").success());
        Command::new(env!("CARGO_BIN_EXE_llmcc-dist")).arg("check").arg(&program).output().expect("it runs")
    };
    let accepted = checked(&flags);
    assert!(accepted.status.success(), "{}", String::from_utf8_lossy(&accepted.stderr));
    let refused = checked("");
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && message.contains("paths of this machine"), "{message}");
    assert!(message.contains(env!("CARGO_MANIFEST_DIR").trim_end_matches("tools/dist")), "{message}");
}
