// The chat templates that llama.cpp is tested with. They belong to the makers of the models, each under a licence of its own, so none is
// in this repository: the source package of llama-cpp-python (MIT), which has llama.cpp's, is fetched once, and checked by its digest.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from './cache-folder.mjs';

const version = '0.3.36';
const sha256 = '832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e';

/** Returns the folder of the templates; throws what to do where they cannot be fetched. */
export function chatTemplates() {
  const folder = cacheFolder(`chat-templates-${version}`);
  if (fs.existsSync(path.join(folder, 'whole'))) return folder;
  try {
    const download = ['-m', 'pip', 'download', '--quiet', '--no-deps', '--no-binary', ':all:'];
    execFileSync('python3', [...download, `llama-cpp-python==${version}`, '-d', folder], { stdio: 'pipe' });
    const archive = path.join(folder, `llama_cpp_python-${version}.tar.gz`);
    const found = createHash('sha256').update(fs.readFileSync(archive)).digest('hex');
    if (found !== sha256) throw new Error(`its digest is ${found}`);
    execFileSync('tar', ['-xzf', archive, '--strip-components=5', '--wildcards', '*/models/templates/*.jinja'], {
      cwd: folder,
    });
    fs.rmSync(archive);
    fs.writeFileSync(path.join(folder, 'whole'), '');
    return folder;
  } catch (error) {
    throw new Error(
      `llama-cpp-python ${version} could not be fetched with pip (python3 -m pip; Debian: apt-get install python3-pip): ${error.message}`,
    );
  }
}
