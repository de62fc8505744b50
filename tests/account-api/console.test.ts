/** Which of its states the web console is in decides what `/` shows; a browser reads the rest (tests/suites/browser). */
import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { Console } from '../../src/account-api/console.ts';
import { temporaryFolder } from '../store/fixture.ts';

const browser = { accept: 'text/html,*/*;q=0.8' };

test('a console that is not there, is being built, could not be built, and is built', async (t) => {
  const folder = join(temporaryFolder(t), 'console');
  // oxlint-disable-next-line prefer-const -- unknown at first, as while the service starts
  let inferenceUrl: string | undefined;
  const webConsole = new Console(folder, () => inferenceUrl);
  const asked = (path: string, headers = browser) => webConsole.answer(path, headers);
  const assertMissing = async (isOnItsWay: boolean): Promise<void> => {
    assert.equal(await asked('/'), undefined);
    const standIn = webConsole.standIn();
    assert.equal(standIn?.status, 503);
    assert.equal(standIn.headers['refresh'], isOnItsWay ? '2' : undefined);
    assert.match(String(standIn.body), isOnItsWay ? /being built/ : /npm run build console/);
  };
  await assertMissing(false);
  mkdirSync(folder);
  await assertMissing(true);
  writeFileSync(join(folder, 'problem.txt'), 'no network');
  await assertMissing(false);

  rmSync(join(folder, 'problem.txt'));
  const files = { 'index.html': { type: 'text/html; charset=utf-8', bytes: 4, br: 4, gz: 4 } };
  writeFileSync(join(folder, 'index.html'), 'page');
  writeFileSync(join(folder, 'manifest.json'), JSON.stringify({ pages: ['/', '/keys/$id'], files }));
  assert.equal(webConsole.standIn(), undefined);
  for (const path of ['/', '/keys/key_1']) {
    const shown = await asked(path);
    assert.equal(shown?.status, 200, path);
    assert.match(shown.headers['content-security-policy'] ?? '', /script-src 'self'/);
  }
  const connects = async (): Promise<string | undefined> =>
    /connect-src ([^;]*)/.exec(String((await asked('/'))?.headers['content-security-policy']))?.[1];
  assert.equal(await connects(), "'self'");
  inferenceUrl = 'https://api.example.org:8443/models';
  assert.equal(await connects(), "'self' https://api.example.org:8443");
  for (const path of ['/keys', '/keys/', '/keys/a/b', '/docs/errors']) assert.equal(await asked(path), undefined, path);
  assert.equal(await asked('/', { accept: '*/*' }), undefined, 'a program');
});
