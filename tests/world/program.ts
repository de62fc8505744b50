/** What the world needs of the program, built into one script (tests/world/machine.ts). */
export { startService } from '../../src/app/start.ts';
export { readContext } from '../../src/cli/read-context.ts';
export { createLog } from '../../src/platform/log.ts';
export { loadConfig } from '../../src/config/load.ts';
export { scriptSchema } from '../../src/inference/engines/scripted/script-schema.ts';
export { demoEventSecret } from '../../src/billing/payments/demo.ts';
export { openSecret } from '../../src/accounts/secret.ts';
