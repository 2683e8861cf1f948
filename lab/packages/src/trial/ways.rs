//! Ways to install `hodo` in a system with apt, and what a user then does.

/// A way to install `hodo`.
pub(super) struct Way {
    pub(super) name: &'static str,
    /// How its file ends.
    pub(super) ending: &'static str,
    /// How a file ends that is there too, as `$2`.
    pub(super) beside: Option<&'static str>,
    /// Systems where it is tried; empty: all.
    pub(super) systems: &'static [&'static str],
    /// Installs the file `/root/FILE`, which is the first argument.
    pub(super) install: &'static str,
    /// The folder of the program, as a pattern of the shell.
    pub(super) programs: &'static str,
    /// What is checked besides the session.
    pub(super) check: &'static str,
    /// Removes it again.
    pub(super) remove: &'static str,
}

const WAY: Way = Way {
    name: "",
    ending: "",
    beside: None,
    systems: &[],
    install: "",
    programs: "/usr/bin",
    check: "",
    remove: "",
};

/// The archive with the static program.
pub(super) const ARCHIVE: &str = "-static.tar.gz";

/// In this order, as later ones add packages that the others could use.
pub(super) const WAYS: [Way; 6] = [
    Way {
        name: "static program",
        ending: ARCHIVE,
        install: "mkdir -p /opt && tar -C /opt -xzf \"$1\"",
        programs: "/opt/hodo-*/bin",
        check: "test -f \"$bin/../share/man/man1/hodo-report.1.gz\"",
        remove: "rm -r /opt/hodo-*",
        ..WAY
    },
    Way {
        name: "wheel",
        ending: ".whl",
        install: "apt-get -qq install -y --no-install-recommends python3-venv > /root/log 2>&1
            python3 -m venv /opt/python
            /opt/python/bin/pip install --quiet --no-index --disable-pip-version-check \"$1\"",
        programs: "/opt/python/bin",
        check: "\"$bin/hodoscope\" --version
            \"$bin/python\" -I -c '
import hodoscope, pathlib
table = hodoscope.open(\"ls.data\").report(\"functions\")
assert table.summary[\"instructions\"] > 1000, table.summary
assert table.plot().svg.startswith(\"<svg \")
assert list((pathlib.Path(hodoscope.__file__).parent / \"schemas\").glob(\"*.json\"))
print(\"Python:\", table)'",
        remove: "rm -r /opt/python",
        ..WAY
    },
    // The names of what it needs are those of distributions with RPM, of which Debian's database of RPM is empty.
    Way {
        name: "RPM package",
        ending: ".x86_64.rpm",
        systems: &["bookworm"],
        install: "apt-get -qq install -y --no-install-recommends rpm > /root/log 2>&1
            rpm --checksig --nosignature \"$1\"
            rpm --install --nodeps \"$1\"",
        check: "rpm --verify --nodeps hodo
            test -f /usr/share/zsh/site-functions/_hodo",
        remove: "rpm --erase --nodeps hodo
            test ! -e /usr/bin/hodo",
        ..WAY
    },
    // makepkg refuses to run as root. pacman checks the room on mounted disks, and here / is a folder.
    Way {
        name: "recipe of the AUR",
        ending: "PKGBUILD",
        beside: Some(ARCHIVE),
        systems: &["bookworm"],
        install: "apt-get -qq install -y --no-install-recommends makepkg pacman-package-manager \
                libarchive-tools fakeroot > /root/log 2>&1
            install -d -o nobody /tmp/arch
            install -o nobody \"$1\" \"$2\" /tmp/arch
            (cd /tmp/arch && HOME=/tmp/arch setpriv --reuid=nobody --clear-groups makepkg --nodeps > /root/log 2>&1)
            sed -i s/^CheckSpace/#CheckSpace/ /etc/pacman.conf
            pacman --upgrade --noconfirm -dd /tmp/arch/*.pkg.tar.* > /root/log 2>&1",
        check: "pacman --query --check --check hodo-bin > /root/log",
        remove: "pacman --remove --noconfirm -dd hodo-bin > /root/log 2>&1
            test ! -e /usr/bin/hodo",
        ..WAY
    },
    // Homebrew comes from git repositories only: a stand-in for its class runs the formula.
    Way {
        name: "formula of Homebrew",
        ending: "hodo.rb",
        beside: Some(ARCHIVE),
        systems: &["bookworm"],
        install: "apt-get -qq install -y --no-install-recommends ruby > /root/log 2>&1
            ruby /root/homebrew.rb \"$1\" \"$2\" /opt/homebrew",
        programs: "/opt/homebrew/bin",
        check: "test -f /opt/homebrew/share/man/man1/hodo.1.gz",
        remove: "rm -r /opt/homebrew",
    },
    Way {
        name: "Debian package",
        ending: "_amd64.deb",
        install: "apt-get -qq install -y --no-install-recommends \"$1\" > /root/log 2>&1",
        check: "dpkg --verify hodo
            test -f /usr/share/bash-completion/completions/hodo
            test -f /usr/share/hodo/schemas/table.schema.json",
        ..WAY
    },
];

/// What a user needs besides: something to record, and something to look at the page.
pub(super) const BESIDE: &str = "apt-get -qq install -y --no-install-recommends curl ca-certificates gcc libc6-dev \
     python3-minimal > /root/log 2>&1";

/// What a user does, in a shell of the clean system. `timeout` ends what hangs.
pub(super) const SESSION: &str = r#"
PATH="$bin:$PATH"
cd /root
rm -f *.data page.html address
hodo --version
record() {
    recording=$1.data
    shift
    timeout 300 hodo record --engine native -q -o $recording -- "$@"
}
record ls ls -l / > /dev/null
timeout 60 hodo report functions --top 3 -q ls.data
echo 'int main(void) { return 0; }' > program.c
record gzip gzip -c /bin/sh > /dev/null
record python python3 -c 'print(sum(range(1000)))'
record gcc gcc -O1 -o program program.c
./program
for recording in gzip python gcc; do
    timeout 60 hodo report functions --strict --top 3 -q $recording.data
done
timeout 60 hodo view --no-open ls.data > address 2>&1 &
viewer=$!
for try in $(seq 50); do
    sleep 1
    address=$(grep -o 'http://[^ ]*' address || true)
    test -z "$address" || break
done
curl --silent --show-error --fail --location --cookie-jar /root/jar "$address" > page.html
kill $viewer
grep -q '<title>' page.html
echo "viewed: $(wc -c < page.html) bytes"
"#;
