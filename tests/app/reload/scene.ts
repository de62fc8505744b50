/** What the tests of reloading share. */
import assert from 'node:assert/strict';
import { join } from 'node:path';

import type { ReloadOutcome } from '../../../src/config/reload-outcome.ts';
import { askService } from '../../../src/app/control/control-client.ts';
import { controlSocketPath } from '../../../src/app/control/socket-path.ts';
import type { TestService } from '../../support/service.ts';

/** As `tokenhouse reload`, which would judge the file itself before it asks. */
export async function reload(service: TestService): Promise<ReloadOutcome> {
  const outcome = await askService(controlSocketPath(join(service.folder, 'data')), { kind: 'reload' });
  assert.ok(outcome);
  return outcome;
}

export interface DemoModel {
  readonly id?: string;
  readonly input?: number;
  readonly output?: number;
  readonly answer?: string;
  readonly backends?: string;
}

/** An item of `models:`; `paced` makes an answer of 100 words that takes a second. */
export function demo({ id = 'demo', input = 5, output = 20, answer = 'hello', backends }: DemoModel = {}): string {
  return `  - id: ${id}
    context_length: 8192
    pricing: { input_cents_per_million: ${input}, output_cents_per_million: ${output} }
    backends:
${
  backends ??
  `      - engine: scripted
        scripts:
          - when: { last_text: paced }
            say: [ { text: [ "word " ] } ]
            repeat: 100
            pace_ms: 10
          - say: [ { text: "${answer}" } ]`
}`;
}

export const models = (...items: readonly string[]): string => `models:\n${items.join('\n')}`;

export const ask = (text: string, more: Readonly<Record<string, unknown>> = {}): Record<string, unknown> => ({
  model: 'demo',
  messages: [{ role: 'user', content: text }],
  ...more,
});
