// The folder for fetched tools between runs, beside the models: outside the repository, so that a fresh clone finds them.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

/** The folder `tokenhouse/<name>` among the user's caches; among the temporary files if the home folder is not usable. */
export function cacheFolder(name) {
  const home = process.env.XDG_CACHE_HOME ?? path.join(os.homedir(), '.cache');
  const own = `tokenhouse-cache-${typeof process.getuid === 'function' ? process.getuid() : 'own'}`;
  for (const base of [path.join(home, 'tokenhouse'), path.join(os.tmpdir(), own)]) {
    const folder = path.join(base, name);
    try {
      fs.mkdirSync(folder, { recursive: true, mode: 0o700 });
      fs.accessSync(folder, fs.constants.W_OK);
      return folder;
    } catch {
      // Try the next place.
    }
  }
  throw new Error('there is no folder for caches: set XDG_CACHE_HOME to one that can be written');
}
