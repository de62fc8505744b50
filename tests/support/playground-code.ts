import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { built } from './built.ts';

export interface ExportedCode {
  readonly name: string;
  /** By the title of its tab. */
  readonly code: Readonly<Record<string, string>>;
}

/**
 * What the console's playground exports for requests to this service, whose model is `demo`. The console is a project of its own,
 * with types that others do not have: a process prints it.
 */
export async function exportedCode(url: string): Promise<readonly ExportedCode[]> {
  const file = built('tests/console/playground-code.ts');
  const { stdout } = await promisify(execFile)(process.execPath, [file, url]);
  return JSON.parse(stdout) as ExportedCode[];
}

/** A model that takes all of it. */
export const exportedModel = `models:
  - id: demo
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    reasoning: { efforts: [none, low], default: low }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: "It is " }, { text: "Paris." } ] } ] } ]`;
