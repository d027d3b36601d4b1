use super::*;

/// A listing of lines of code, each an instruction, and labels.
fn listing(lines: &str) -> Listing {
    let mut text =
        String::from("\t.section\t.text.k_m,\"ax\",@progbits\n\t.sectionflags\t@\"SHF_BARRIERS=1\"\n.text.k_m:\n");
    let mut address = 0;
    for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if line.ends_with(':') {
            text += &format!("{line}\n");
        } else {
            text += &format!("        /*{address:04x}*/                   {line} ;\n");
            address += 16;
        }
    }
    listings(&text).unwrap().remove("k_m").unwrap()
}

#[test]
fn instructions_and_what_they_write() {
    let of = |line: &str| listing(line).code[0].clone();
    let i = of("@!P0 LDS.128 R4, [R2+0x10]");
    assert_eq!((i.guard.as_str(), i.class(), i.name.as_str(), i.operands.len()), ("!P0", "LDS", "LDS.128", 2));
    for (line, want) in [
        ("LDG.E.64.CONSTANT R2, desc[UR6][R8.64+0x18]", 2..4),
        ("IMAD.WIDE.U32 R4, R13, 0x400, R4", 4..6),
        ("LOP3.LUT P0, RZ, R2, 0x1f, RZ, 0xc0, !PT", 0..0),
        ("SHFL.BFLY PT, R3, R12, 0x10, 0x1f", 3..4),
        ("ISETP.GE.AND P0, PT, R0, R3, PT", 0..0),
        ("CS2R R24, SRZ", 24..26),
        ("STS.128 [R4], R8", 0..0),
        ("LDSM.16.M88.4 R8, [R4]", 8..12),
        ("HMMA.16816.F32.BF16 R8, R4, R2, R8", 8..12),
        ("HGMMA.64x256x16.F32.BF16 R24, R152, gdesc[UR8], R24, gsb0", 24..152),
        ("QGMMA.64x128x32.F32.E4M3.E4M3 R24, R4, gdesc[UR8], R24", 24..88),
        ("R2UR UR4, R5", 0..0),
        ("BAR.SYNC.DEFER_BLOCKING R5, 0x80", 0..0),
        ("IADD3 R12, P0, R2, R5, RZ", 12..13),
    ] {
        assert_eq!(of(line).writes(), want, "{line}");
    }
}

/// A wait out of line, whose way back leads to a lower address, is in the loop and no loop of its
/// own; one in line is.
#[test]
fn loops_are_by_flow_not_by_address() {
    let l = listing(
        "MOV R1, RZ
         .L_loop:
         SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R2], R3
         @!P0 BRA `(.L_slow)
         .L_back:
         HMMA.16816.F32 R8, R4, R2, R8
         .L_inner:
         NANOSLEEP 0x1
         @P1 BRA `(.L_inner)
         LOP3.LUT R5, R6, 0xf, RZ, 0xc0, !PT
         @!PT LDS RZ, [RZ]
         @P2 BRA `(.L_loop)
         EXIT
         .L_slow:
         SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R2], R3
         @!P0 BRA `(.L_slow)
         BRA `(.L_back)",
    );
    let loops = l.loops().unwrap();
    assert_eq!(loops.len(), 3);
    assert_eq!(loops[0].body.first(), Some(&1));
    let counts = count::hot(&l).unwrap();
    assert_eq!(counts.len(), 1);
    // Not the two loops of waiting; the way back from the second counts.
    assert_eq!(counts[0].line(), "BRA 3 HMMA 1 LDS 1 LOP3 1 SYNCS 1 (never executed 1)");
}

/// Barriers of convergence are few and used again: one outside of a loop and one in it do not make
/// another way in.
#[test]
fn barriers_of_convergence_are_no_branches() {
    let l = listing(
        "BSSY B0, `(.L_a)\nBSYNC B0\n.L_a:\nNOP\n.L_loop:\nBSSY B0, `(.L_b)\n@P1 BRA `(.L_c)\nMOV R1, R2\n.L_c:\nBSYNC B0\n.L_b:\n\
         HMMA.16816.F32 R8, R4, R2, R8\n@P0 BRA `(.L_loop)\nEXIT",
    );
    let hot = count::hot(&l).unwrap();
    assert_eq!((hot.len(), hot[0].total), (1, 6));
}

#[test]
fn branches_go_where_they_may() {
    let l = listing(
        "BSSY B0, `(.L_end)\n@P0 BRA `(.L_other)\nBSYNC B0\n.L_other:\nMOV R1, R2\n.L_end:\n@P0 EXIT\nBRA P1, `(.L_other)\nEXIT",
    );
    let after = |i| l.after(i).unwrap();
    assert_eq!((after(1), after(2), after(4), after(5), after(6)), (vec![2, 3], vec![3], vec![5], vec![3, 6], vec![]));
    assert!(listing("BRX R2 -0x10").loops().unwrap_err().contains("anywhere"));
    assert!(listing("BRA `(.L_nowhere)").loops().unwrap_err().contains(".L_nowhere"));
}

/// Two sets of weights in turns, as in our pipelines: the set of the group before may be written
/// once that is done, the newer one not.
const PIPELINE: &str = "
    .L_loop:
    LDS.128 R152, [R2]
    HGMMA.64x256x16.F32.BF16 R24, R152, gdesc[UR8], R24
    HGMMA.64x256x16.F32.BF16 R24, R156, gdesc[UR12], R24, gsb0
    WARPGROUP.DEPBAR.LE gsb0, 0x1
    LDS.128 R168, [R2]
    HGMMA.64x256x16.F32.BF16 R24, R168, gdesc[UR8], R24, gsb0
    WARPGROUP.DEPBAR.LE gsb0, 0x1
    @P0 BRA `(.L_loop)
    WARPGROUP.DEPBAR.LE gsb0, 0x0
    STS [R1], R24
    MOV R24, R2
    MOV R168, R2
    EXIT";

#[test]
fn weights_in_flight_are_found() {
    assert_eq!(flight::products(&listing(PIPELINE)), 3);
    assert_eq!(flight::overwritten(&listing(PIPELINE)).unwrap(), Vec::<String>::new());
    // A wait that lets one group more go on.
    let late = PIPELINE.replacen("gsb0, 0x1", "gsb0, 0x2", 2);
    let found = flight::overwritten(&listing(&late)).unwrap();
    assert!(found.len() == 2 && found[0].contains("LDS.128 R152") && found[1].contains("LDS.128 R168"), "{found:?}");
    // Weights, and sums, written behind the product; also before its group is closed; also two
    // registers at once, the second of which matters.
    for (after, wrong) in [
        ("gdesc[UR12], R24, gsb0", "MOV R157, R9"),
        ("gdesc[UR12], R24, gsb0", "CS2R R150, SRZ"),
        ("R152, gdesc[UR8], R24", "IMAD.WIDE R154, R2, R3, R4"),
        ("R152, gdesc[UR8], R24", "MOV R151, R9"),
    ] {
        let text = PIPELINE.replacen(after, &format!("{after}\n{wrong}"), 1);
        let found = flight::overwritten(&listing(&text)).unwrap();
        assert!(found.len() == 1 && found[0].contains(wrong), "{wrong}: {found:?}");
    }
    // Along one of two ways only.
    let text =
        PIPELINE.replacen("LDS.128 R168, [R2]", "@P3 BRA `(.L_over)\nMOV R152, R2\n.L_over:\nLDS.128 R168, [R2]", 1);
    assert_eq!(flight::overwritten(&listing(&text)).unwrap().len(), 1);
}
