import { OperationError } from '../accounts/operations.ts';
import { ConfigError } from '../config/problem.ts';
import { ModelFileError, SourceProblem } from '../model-files/problem.ts';
import { StoreError } from '../store/store-error.ts';
import type { Printer } from './output.ts';

/** Says what went wrong, why, and what repairs it. Never a stack: that is for us, under TOKENHOUSE's own tests. */
export function explain(error: unknown, print: Printer): void {
  const lines = linesOf(error);
  if (print.json) print.result({ error: lines.join('\n') }, []);
  for (const line of lines) print.say(line);
}

/** The codes of sysexits.h: 69 unavailable, 78 configuration; 1 for what was refused. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof ConfigError) return 78;
  if (error instanceof OperationError) return 1;
  return 69;
}

function linesOf(error: unknown): readonly string[] {
  if (error instanceof ConfigError) return error.problems.map(({ where, what }) => `${where}: ${what}`);
  if (error instanceof ModelFileError) return [error.message, ...error.remedies];
  if (error instanceof OperationError || error instanceof StoreError || error instanceof SourceProblem)
    return [error.message];
  const { code, message, port, address } = error as {
    readonly code?: string;
    readonly message?: string;
    readonly port?: number;
    readonly address?: string;
  };
  if (code === 'EADDRINUSE') {
    return [
      `Port ${port} of ${address} is taken, so the service cannot listen there.`,
      'Stop the program that has it, or set another one in tokenhouse.yaml: server.inference.port (8080), server.account.port (8081).',
    ];
  }
  if (code === 'EACCES')
    return [
      `${message ?? 'permission denied'}: choose another port or folder in tokenhouse.yaml, or change its owner.`,
    ];
  return [message ?? String(error)];
}
