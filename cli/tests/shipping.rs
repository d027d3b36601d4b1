//! Artifacts for other people's machines and programs: every processor, a name for the loader, and the
//! version of the C API.

use crate::common::{Folder, WITH_TOKENIZER, text};
use llmcc_codegen::sealed::renew;
use std::path::Path;
use std::process::{Command, Output};

/// The command line as a user has it, without the tests' own choice of a target.
fn compile(folder: &Folder, args: &[&str]) -> Output {
    let mut llmcc = Command::new(env!("CARGO_BIN_EXE_llmcc"));
    llmcc.current_dir(folder.root()).args(["compile", "ck", "--no-golden", "--quiet"]).args(args);
    llmcc.output().expect("llmcc runs")
}

#[track_caller]
fn done(output: &Output) {
    assert!(output.status.success(), "{}", text(&output.stderr));
}

fn readelf(artifact: &Path) -> String {
    let out = Command::new("readelf").args(["-dW"]).arg(artifact).env("LC_ALL", "C").output().expect("readelf runs");
    assert!(out.stderr.is_empty(), "{}", text(&out.stderr));
    text(&out.stdout)
}

#[test]
fn without_a_target_a_file_is_for_every_processor() {
    let folder = Folder::with_checkpoint();
    done(&compile(&folder, &["-o", "all.so"]));
    let options = &folder.manifest("all.so")["options"];
    assert_eq!((&options["target"], &options["also"][0]), (&"x86-64-v4".into(), &"x86-64-v3".into()));
    assert_eq!(options["also"].as_array().map(Vec::len), Some(2));
    let versions: Vec<String> = folder.manifest("all.so")["versions"]
        .as_array()
        .expect("versions")
        .iter()
        .map(|v| v["target"].as_str().expect("a name").to_owned())
        .collect();
    assert_eq!(versions, ["x86-64-v4", "x86-64-v3", "x86-64"]);
    // The option without a value says the same, wherever it stands.
    for (out, args) in [("a.so", &["-o", "a.so", "--target"][..]), ("b.so", &["--target", "-o", "b.so"])] {
        done(&compile(&folder, args));
        assert_eq!(folder.root_of(out), folder.root_of("all.so"));
    }
    // The least of processors runs it.
    let baseline = [("LLMCC_DEVICE", "x86-64".as_ref())];
    folder.says(&baseline, &["run", "all.so", "--ids", "1,2", "-n", "2"]);
    // A stage is shown of one version: this machine's.
    let plan = |more: &[&str]| text(&compile(&folder, &[&["--emit", "plan"], more].concat()).stdout);
    assert_eq!(plan(&[]), plan(&["--target", "native"]));
}

#[test]
fn an_artifact_has_a_name_if_it_is_asked_for() {
    let folder = Folder::with_checkpoint();
    done(&compile(&folder, &["--target", "native", "-o", "tiny.so"]));
    assert!(!readelf(&folder.at("tiny.so")).contains("SONAME"));
    let longest = "x".repeat(255);
    for (asked, out, name) in [
        ("auto", "tiny.so", "libtiny.so.1"),
        ("auto", "libtiny.so.1", "libtiny.so.1"),
        ("auto", "tiny.some.so", "libtiny.some.so.1"),
        ("my-model.so", "m.so", "my-model.so"),
        (&longest, "long.so", &longest),
    ] {
        done(&compile(&folder, &["--target", "native", "--soname", asked, "-o", out]));
        let dynamic = readelf(&folder.at(out));
        assert!(dynamic.contains(&format!("Library soname: [{name}]")), "{dynamic}");
        assert_eq!(folder.manifest(out)["options"]["soname"], name);
        assert!(folder.says(&[], &["inspect", out]).contains(&format!(", soname {name}\n")));
        folder.says(&[], &["verify", out]);
        folder.says(&[], &["run", out, "--ids", "1,2", "-n", "2"]);
    }
    // An output that nobody names has the checkpoint's name.
    done(&compile(&folder, &["--target", "native", "--soname", "auto"]));
    assert_eq!(folder.manifest("ck.so")["options"]["soname"], "libck.so.1");
    let too_long = "x".repeat(256);
    for wrong in ["", ".", "a/b.so", "a b", "a\nb", &too_long] {
        let output = compile(&folder, &["--soname", wrong, "-o", "wrong.so"]);
        assert!(output.status.code() == Some(2) && text(&output.stderr).contains("--soname"), "{output:?}");
    }
    assert!(!folder.at("wrong.so").exists());
}

/// A program that is linked with an artifact records its name, and finds it wherever the loader looks.
#[test]
fn programs_record_the_name() {
    let folder = Folder::new();
    folder.compile(WITH_TOKENIZER, "libtiny.so.1", &["--soname", "auto", "--no-golden", "--quiet"]);
    let (root, exe) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), folder.at("linked"));
    let built = Command::new("cc")
        .arg("-I")
        .arg(root.join("include"))
        .arg(root.join("examples/cmake/linked.c"))
        .arg(folder.at("libtiny.so.1"))
        .arg("-o")
        .arg(&exe)
        .output();
    done(&built.expect("cc runs"));
    assert!(readelf(&exe).contains("Shared library: [libtiny.so.1]"), "{}", readelf(&exe));
    std::fs::create_dir(folder.at("lib")).expect("folder");
    std::fs::rename(folder.at("libtiny.so.1"), folder.at("lib/libtiny.so.1")).expect("moved");
    let run = |path: &str| Command::new(&exe).env("LD_LIBRARY_PATH", folder.at(path)).output().expect("runs");
    done(&run("lib"));
    assert!(text(&run("none").stderr).contains("libtiny.so.1"));
}

/// An artifact of another version of the C API is refused with both numbers, from every language.
#[test]
fn another_version_of_the_api_is_refused() {
    let folder = Folder::new();
    folder.compile(WITH_TOKENIZER, "m.so", &["--no-golden", "--quiet"]);
    assert!(folder.says(&[], &["inspect", "m.so"]).contains("abi         C API 1.12, format "));
    assert_eq!(folder.manifest("m.so")["abi"], "1.12");
    // mov eax, 0x1000c; ret
    let own = [0xB8, 0x0C, 0x00, 0x01, 0x00, 0xC3];
    let mut bytes = std::fs::read(folder.at("m.so")).expect("an artifact");
    let found: Vec<usize> = bytes.windows(own.len()).enumerate().filter(|(_, w)| *w == own).map(|(i, _)| i).collect();
    assert_eq!(found.len(), 1, "the code of llmcc_abi_version");
    bytes[found[0] + 3] = 2;
    renew(&mut bytes, &mut []).expect("an artifact");
    std::fs::write(folder.at("m.so"), bytes).expect("written");
    let refused = text(&folder.llmcc(&["run", "m.so", "-p", "a"]).stderr);
    assert!(refused.contains("version 2.12") && refused.contains("version 1.12"), "{refused}");
    assert!(refused.contains("compile the model again"), "{refused}");
    let Some(python) = std::env::var_os("LLMCC_PYTHON") else {
        println!("skipped in Python: LLMCC_PYTHON does not name a Python with the llmcc package");
        return;
    };
    let load =
        Command::new(python).args(["-c", "import llmcc; llmcc.load('./m.so')"]).current_dir(folder.root()).output();
    let said = text(&load.expect("python runs").stderr);
    assert!(said.contains("version 2.12") && said.contains("version 1.12") && said.contains("compile"), "{said}");
}
