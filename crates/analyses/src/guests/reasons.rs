//! Names of VM exits.

/// The basic exit reasons from 0, as the kernel names them. Source: Intel SDM vol. 3, appendix "VMX Basic Exit Reasons";
/// Linux, arch/x86/include/uapi/asm/vmx.h. An empty name is no reason.
#[rustfmt::skip] // Eight in a row.
const NAMES: [&str; 78] = [
    "EXCEPTION_NMI", "EXTERNAL_INTERRUPT", "TRIPLE_FAULT", "INIT_SIGNAL", "SIPI_SIGNAL", "IO_SMI", "OTHER_SMI", "INTERRUPT_WINDOW",
    "NMI_WINDOW", "TASK_SWITCH", "CPUID", "GETSEC", "HLT", "INVD", "INVLPG", "RDPMC",
    "RDTSC", "RSM", "VMCALL", "VMCLEAR", "VMLAUNCH", "VMPTRLD", "VMPTRST", "VMREAD",
    "VMRESUME", "VMWRITE", "VMOFF", "VMON", "CR_ACCESS", "DR_ACCESS", "IO_INSTRUCTION", "MSR_READ",
    "MSR_WRITE", "INVALID_STATE", "MSR_LOAD_FAIL", "", "MWAIT_INSTRUCTION", "MONITOR_TRAP_FLAG", "", "MONITOR_INSTRUCTION",
    "PAUSE_INSTRUCTION", "MCE_DURING_VMENTRY", "", "TPR_BELOW_THRESHOLD", "APIC_ACCESS", "EOI_INDUCED", "GDTR_IDTR", "LDTR_TR",
    "EPT_VIOLATION", "EPT_MISCONFIG", "INVEPT", "RDTSCP", "PREEMPTION_TIMER", "INVVPID", "WBINVD", "XSETBV",
    "APIC_WRITE", "RDRAND", "INVPCID", "VMFUNC", "ENCLS", "RDSEED", "PML_FULL", "XSAVES",
    "XRSTORS", "PCONFIG", "SPP_EVENT", "UMWAIT", "TPAUSE", "LOADIWKEY", "ENCLV", "",
    "ENQCMD_PASID", "ENQCMDS_PASID", "BUS_LOCK", "NOTIFY", "SEAMCALL", "TDCALL",
];

/// Bit of a reason that is AMD's: the emulated machine has such guests. A reason of VMX has 32 bits.
const SVM: u64 = 1 << 32;

/// AMD's exit codes from 0x60, in lower case as the kernel names them. Source: Linux, arch/x86/include/uapi/asm/svm.h.
#[rustfmt::skip] // Eight in a row.
const SVM_NAMES: [&str; 46] = [
    "interrupt", "nmi", "smi", "init", "vintr", "cr0_sel_write", "read_idtr", "read_gdtr",
    "read_ldtr", "read_tr", "write_idtr", "write_gdtr", "write_ldtr", "write_tr", "rdtsc", "rdpmc",
    "pushf", "popf", "cpuid", "rsm", "iret", "swint", "invd", "pause",
    "hlt", "invlpg", "invlpga", "io", "msr", "task_switch", "ferr_freeze", "shutdown",
    "vmrun", "hypercall", "vmload", "vmsave", "stgi", "clgi", "skinit", "rdtscp",
    "icebp", "wbinvd", "monitor", "mwait", "mwait_cond", "xsetbv",
];

/// Returns the name of an exit code of AMD's.
fn svm_name(code: u64) -> String {
    match code {
        0x00..=0x0f => format!("read_cr{code}"),
        0x10..=0x1f => format!("write_cr{}", code - 0x10),
        0x20..=0x2f => format!("read_dr{}", code - 0x20),
        0x30..=0x3f => format!("write_dr{}", code - 0x30),
        0x40..=0x5f => format!("excp_{}", code - 0x40),
        0x400 => "npf".to_owned(),
        0x60..=0x8d => SVM_NAMES[code as usize - 0x60].to_owned(),
        _ => format!("{code:#x}"),
    }
}

/// Returns the name of a VM exit's reason: the basic reason is in bits 15:0.
pub(super) fn name(reason: u64) -> String {
    if reason & SVM != 0 {
        return svm_name(reason & !SVM);
    }
    let basic = reason & 0xffff;
    let known =
        usize::try_from(basic).ok().and_then(|basic| NAMES.get(basic)).filter(|name| !name.is_empty());
    known.map_or_else(|| basic.to_string(), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_both_makers_have_names() {
        assert_eq!([10, 12, 0x8000_0021, 35].map(name), ["CPUID", "HLT", "INVALID_STATE", "35"]);
        let amd = [0x10, 0x4e, 0x60, 0x72, 0x78, 0x7b, 0x81, 0x8d, 0x400, 0x401].map(|code| name(SVM | code));
        let expected = [
            "write_cr0",
            "excp_14",
            "interrupt",
            "cpuid",
            "hlt",
            "io",
            "hypercall",
            "xsetbv",
            "npf",
            "0x401",
        ];
        assert_eq!(amd, expected);
    }
}
