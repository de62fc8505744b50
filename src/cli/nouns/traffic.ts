import { loads, option } from '../command-row.ts';
import type { CommandRow } from '../command-row.ts';
import { moment, wholeNumber } from '../option.ts';

const commandsOf = () => import('../traffic.ts');
const onlyModel = option('--model <model>', 'only this model (default: all)');

/** All of them ask the running service of this folder. */
export const trafficCommands: readonly CommandRow[] = [
  loads(
    'record',
    'record times, lengths and which prompts begin alike, without content, in memory; forgets what was recorded before',
    [option('--minutes <number>', 'for so long', wholeNumber(1, 1_440), 30), onlyModel],
    () => commandsOf().then(({ recordTraffic }) => recordTraffic),
  ),
  loads(
    'export',
    "write what was recorded as a trace in Mooncake's form, as `npm run bench simulate -- --trace FILE` reads it",
    [
      option('-o, --output <file>', 'to this file (default: standard output)'),
      onlyModel,
      option('--from <time>', 'requests from then on, in UTC, for example 2027-06-30T12:00:00Z', moment),
      option('--to <time>', 'requests before then', moment),
    ],
    () => commandsOf().then(({ exportTraffic }) => exportTraffic),
  ),
  loads('forget', 'end the recording, and forget what was recorded', [], () =>
    commandsOf().then(({ forgetTraffic }) => forgetTraffic),
  ),
];
