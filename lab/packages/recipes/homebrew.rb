# Runs a formula without Homebrew, whose own programs come from git repositories only:
#
#   ruby homebrew.rb FORMULA ARCHIVE PREFIX
#
# It knows what this formula uses of the class Formula. The archive takes the place of what `url` names, if its name and
# checksum are those of the formula.
require "digest"
require "fileutils"
require "open3"
require "pathname"
require "tmpdir"

class Pathname
  def install(*sources)
    mkpath
    sources.flatten.each { |source| FileUtils.cp_r(source, self) }
  end
end

class Formula
  class << self
    attr_reader :test_block

    %i[desc homepage url version sha256].each do |name|
      define_method(name) { |value = nil| value ? instance_variable_set("@#{name}", value) : instance_variable_get("@#{name}") }
    end

    def license(*) = nil
    def depends_on(*) = nil
    def inherited(formula) = (@@formula = formula)
    def formula = @@formula

    def test(&block)
      @test_block = block
    end
  end

  def prefix = Pathname(ARGV[2])
  def bin = prefix/"bin"
  def lib = prefix/"lib"
  def man1 = prefix/"share/man/man1"
  def pkgshare = prefix/"share/hodo"
  def bash_completion = prefix/"etc/bash_completion.d"
  def zsh_completion = prefix/"share/zsh/site-functions"
  def fish_completion = prefix/"share/fish/vendor_completions.d"

  def system(*words) = Kernel.system(*words.map(&:to_s)) || abort("#{words.join(" ")} failed")

  def shell_output(command)
    output, status = Open3.capture2(command)
    status.success? ? output : abort("#{command} failed")
  end

  def assert_match(text, output) = output.include?(text) || abort("no `#{text}` in #{output}")
end

formula, archive = ARGV
load formula
klass = Formula.formula
abort "the formula fetches #{klass.url}" unless File.basename(klass.url) == File.basename(archive)
abort "the formula has another checksum" unless Digest::SHA256.file(archive).hexdigest == klass.sha256
Dir.mktmpdir do |folder|
  # Homebrew enters the only folder of an archive.
  Kernel.system("tar", "-xzf", archive, "-C", folder, "--strip-components=1") || abort("tar failed")
  Dir.chdir(folder) { klass.new.install }
  Dir.chdir(folder) { klass.new.instance_eval(&klass.test_block) }
end
