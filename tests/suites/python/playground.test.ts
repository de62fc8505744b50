/** What the console's playground exports in Python runs as it stands, with the official clients. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { exportedCode, exportedModel } from '../../support/playground-code.ts';
import { InnerService } from '../../support/service.ts';

const python = process.env['PYTHON_OF_CLIENTS'];
assert.ok(python, 'PYTHON_OF_CLIENTS is not set: run npm run suite python');

test('the exported programs send their request, and print the answer', async (t) => {
  const service = new InnerService({ config: exportedModel });
  t.after(() => service.dispose());
  await service.start();
  const env = { ...process.env, TOKENHOUSE_KEY: service.key };
  for (const { name, code } of await exportedCode(service.url)) {
    const { stdout } = await promisify(execFile)(python, ['-c', code['Python']!], { env, timeout: 120_000 });
    assert.match(stdout, /It is Paris\./, name);
  }
});
