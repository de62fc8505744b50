// The chat templates that llama.cpp is tested with. They belong to the makers of the models, each under a licence of its own, so none is
// in this repository: the source package of llama-cpp-python (MIT), which has llama.cpp's, is fetched once, and checked by its digest.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from './cache-folder.mjs';

const version = '0.3.36';
const index = 'https://pypi.org/simple/llama-cpp-python/';
const sha256 = '832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e';

/** Returns the folder of the templates; throws what to do where they cannot be fetched. */
export async function chatTemplates() {
  const folder = cacheFolder(`chat-templates-${version}`);
  if (fs.existsSync(path.join(folder, 'whole'))) return folder;
  try {
    const page = await (await fetch(index)).text();
    const [, link] = new RegExp(`href="([^"#]*llama_cpp_python-${version}\\.tar\\.gz)`).exec(page) ?? [];
    if (link === undefined) throw new Error('the registry does not list it');
    const archive = Buffer.from(await (await fetch(new URL(link, index))).arrayBuffer());
    if (createHash('sha256').update(archive).digest('hex') !== sha256) throw new Error('its digest is another one');
    const options = { input: archive, cwd: folder, maxBuffer: 2 ** 28 };
    execFileSync('tar', ['-xz', '--strip-components=5', '--wildcards', '*/models/templates/*.jinja'], options);
    fs.writeFileSync(path.join(folder, 'whole'), '');
    return folder;
  } catch (error) {
    throw new Error(`llama-cpp-python ${version} could not be fetched from the Python registry: ${error.message}`);
  }
}
