/** What the console's playground exports for a shell and in JavaScript runs as it stands, with the official clients. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { runFolder } from '../support/built.ts';
import { exportedCode, exportedModel } from '../support/playground-code.ts';
import { InnerService } from '../support/service.ts';
import { runProgram } from './run-program.ts';

test('the exported programs send their request, and print the answer', async (t) => {
  const service = new InnerService({ config: exportedModel });
  const folder = mkdtempSync(join(runFolder, 'playground-'));
  t.after(async () => {
    rmSync(folder, { recursive: true, force: true });
    await service.dispose();
  });
  await service.start();
  for (const { name, code } of await exportedCode(service.url))
    for (const [language, title] of [
      ['sh', 'curl'],
      ['js', 'JavaScript'],
    ] as const) {
      const program = { language, text: code[title]!, where: name };
      const { code: ended, stdout, stderr } = await runProgram(program, folder, service.key);
      assert.equal(ended, 0, `${name}: ${stderr}${stdout}`);
      assert.match(stdout, /Paris\./, name);
    }
});
