import { debianRoot, needRoot } from '../../../scripts/debian-root.mjs';

export function setup() {
  needRoot(['dpkg-deb', 'unshare', 'lintian']);
  return { DEBIAN_ROOT: debianRoot() };
}
