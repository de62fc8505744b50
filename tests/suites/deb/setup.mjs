import { debianRoot, needRoot } from '../../../scripts/debian-root.mjs';

export function setup() {
  needRoot(['dpkg-deb', 'nsenter', 'systemd-nspawn', 'lintian', 'curl']);
  // What a server has beside Debian's base: systemd with its bus, and procps, which a reload takes.
  return { DEBIAN_ROOT: debianRoot('systemd', ['systemd', 'systemd-sysv', 'dbus', 'procps']) };
}
