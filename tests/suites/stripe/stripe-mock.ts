import { spawn } from 'node:child_process';
import type { TestContext } from 'node:test';

import { until } from '../../support/service.ts';
import { freePort } from '../../support/free-port.ts';

/** Runs stripe-mock, which the setup of the suite has found, until the test ends. Resolves with its address. */
export async function startStripeMock(t: { after: TestContext['after'] }): Promise<string> {
  const program = process.env['STRIPE_MOCK'];
  if (program === undefined) throw new Error('these tests need stripe-mock: run them with npm run suite stripe');
  const port = await freePort();
  const child = spawn(program, ['-http-port', String(port)], { stdio: 'ignore' });
  t.after(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const closed = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGKILL');
    await closed;
  });
  const url = `http://127.0.0.1:${port}`;
  await until(
    () =>
      fetch(url).then(
        () => true,
        () => false,
      ),
    60_000,
  );
  return url;
}
