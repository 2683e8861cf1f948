// nested: runs a small guest with KVM. The guest counts in 16, 32 and 64-bit code, takes an interrupt, and exits for
// several reasons. Prints the exits that reach this program, and how many instructions the guest's loops have.
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

// The guest's memory: interrupt vectors, its code, descriptors, stack, page tables.
#define SIZE 0x10000
#define CODE 0x1000
#define DESCRIPTORS 0x2000
#define STACK 0x4000
#define TABLES 0x5000
#define VECTOR 0x20
// Iterations of each loop.
#define ROUNDS 1000

extern const uint8_t guest[], handler[], guest_end[];
#define TEXT(x) #x
#define VALUE(x) TEXT(x)

asm(".pushsection .rodata\n"
    ".code16\n"
    "guest:  sti\n"
    "        mov $" VALUE(ROUNDS) ", %cx\n"
    "1:      loop 1b\n"
    "        mov $16, %al\n"
    "        out %al, $0x10\n"
    "        xor %eax, %eax\n"
    "        cpuid\n"
    "        cli\n"
    "        lgdtl " VALUE(DESCRIPTORS) "\n"
    "        mov %cr0, %eax\n"
    "        or $1, %al\n"
    "        mov %eax, %cr0\n"
    "        ljmpl $8, $" VALUE(CODE) " + 2f - guest\n"
    "handler: incw %si\n"
    "        iret\n"
    ".code32\n"
    "2:      mov $" VALUE(ROUNDS) ", %ecx\n"
    "1:      dec %ecx\n"
    "        jnz 1b\n"
    "        mov $32, %al\n"
    "        out %al, $0x10\n"
    "        mov %cr4, %eax\n"
    "        or $0x20, %eax\n"
    "        mov %eax, %cr4\n"
    "        mov $" VALUE(TABLES) ", %eax\n"
    "        mov %eax, %cr3\n"
    "        mov $0xc0000080, %ecx\n"
    "        rdmsr\n"
    "        or $0x100, %eax\n"
    "        wrmsr\n"
    "        mov %cr0, %eax\n"
    "        or $0x80000000, %eax\n"
    "        mov %eax, %cr0\n"
    "        ljmpl $16, $" VALUE(CODE) " + 3f - guest\n"
    ".code64\n"
    "3:      mov $" VALUE(ROUNDS) ", %ecx\n"
    "1:      call 4f\n"
    "        dec %ecx\n"
    "        jnz 1b\n"
    "        vmmcall\n"
    "        mov $64, %al\n"
    "        out %al, $0x10\n"
    "        hlt\n"
    "4:      ret\n"
    "guest_end:\n"
    ".popsection\n");

static void check(const char *what, long result) {
  if (result < 0) {
    perror(what);
    exit(1);
  }
}

int main(void) {
  int kvm = open("/dev/kvm", O_RDWR);
  check("/dev/kvm", kvm);
  int vm = ioctl(kvm, KVM_CREATE_VM, 0);
  check("KVM_CREATE_VM", vm);
  uint8_t *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  memcpy(memory + CODE, guest, guest_end - guest);
  uint16_t vector[] = {CODE + (handler - guest), 0};
  memcpy(memory + 4 * VECTOR, vector, sizeof vector);
  struct {
    uint16_t limit;
    uint32_t base;
  } __attribute__((packed)) table = {23, DESCRIPTORS + 8};
  // Nothing, 32-bit code, 64-bit code.
  uint64_t descriptors[] = {0, 0x00cf9b000000ffff, 0x00af9b000000ffff};
  memcpy(memory + DESCRIPTORS, &table, sizeof table);
  memcpy(memory + DESCRIPTORS + 8, descriptors, sizeof descriptors);
  // One page of 2 MiB at its own address.
  uint64_t pages[] = {TABLES + 0x1003, TABLES + 0x2003, 0x83};
  for (int level = 0; level < 3; level++) memcpy(memory + TABLES + 0x1000 * level, &pages[level], 8);
  struct kvm_userspace_memory_region region = {.memory_size = SIZE, .userspace_addr = (uintptr_t)memory};
  check("KVM_SET_USER_MEMORY_REGION", ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region));

  int vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
  check("KVM_CREATE_VCPU", vcpu);
  struct kvm_run *run =
      mmap(NULL, ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
  // The processor that KVM offers has long mode.
  struct kvm_cpuid2 *cpuid = calloc(1, sizeof *cpuid + 256 * sizeof cpuid->entries[0]);
  cpuid->nent = 256;
  check("KVM_GET_SUPPORTED_CPUID", ioctl(kvm, KVM_GET_SUPPORTED_CPUID, cpuid));
  check("KVM_SET_CPUID2", ioctl(vcpu, KVM_SET_CPUID2, cpuid));
  struct kvm_sregs segments;
  check("KVM_GET_SREGS", ioctl(vcpu, KVM_GET_SREGS, &segments));
  segments.cs.base = segments.cs.selector = 0;
  check("KVM_SET_SREGS", ioctl(vcpu, KVM_SET_SREGS, &segments));
  struct kvm_regs registers = {.rip = CODE, .rsp = STACK, .rflags = 2};
  check("KVM_SET_REGS", ioctl(vcpu, KVM_SET_REGS, &registers));

  for (;;) {
    check("KVM_RUN", ioctl(vcpu, KVM_RUN, 0));
    if (run->exit_reason == KVM_EXIT_HLT) break;
    if (run->exit_reason != KVM_EXIT_IO) {
      fprintf(stderr, "exit %u\n", run->exit_reason);
      return 1;
    }
    int width = ((uint8_t *)run)[run->io.data_offset];
    printf("out %d\n", width);
    struct kvm_interrupt interrupt = {VECTOR};
    if (width == 16) check("KVM_INTERRUPT", ioctl(vcpu, KVM_INTERRUPT, &interrupt));
  }
  check("KVM_GET_REGS", ioctl(vcpu, KVM_GET_REGS, &registers));
  // The loops of 16, 32 and 64-bit code have 1, 2 and 4 instructions.
  printf("hlt\ninterrupts %d\nloops %d\n", (int)registers.rsi, 7 * ROUNDS);
  return 0;
}
