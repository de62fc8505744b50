import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

/** A folder of the test's own, gone when it ends. */
export function temporaryFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-test-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Of the file, or of the bytes. */
export const sha256Of = (file: string | Buffer): string =>
  createHash('sha256')
    .update(typeof file === 'string' ? readFileSync(file) : file)
    .digest('hex');
