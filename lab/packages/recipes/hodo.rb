class Hodo < Formula
  desc "Records and analyses exact execution traces"
  homepage "@REPOSITORY@"
  url "@REPOSITORY@/releases/download/v@VERSION@/hodo-@VERSION@-x86_64-linux-static.tar.gz"
  version "@VERSION@"
  sha256 "@SHA256@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on arch: :x86_64
  depends_on :linux

  def install
    bin.install "bin/hodo"
    (lib/"hodo").install "lib/hodo/libhodo_emulator.so"
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/bash-completion/completions/hodo"
    zsh_completion.install "share/zsh/vendor-completions/_hodo"
    fish_completion.install "share/fish/vendor_completions.d/hodo.fish"
    pkgshare.install "share/hodo/schemas"
  end

  test do
    system bin/"hodo", "record", "-q", "-o", "true.data", "--", "true"
    assert_match "instructions", shell_output("#{bin}/hodo report functions -q true.data")
  end
end
