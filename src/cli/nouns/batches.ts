import { limitOption, loads, option, word } from '../command-row.ts';
import type { CommandRow } from '../command-row.ts';
import { serviceUrl } from '../option.ts';

const batchWord = word('<batch-id>', 'id of the batch, from batches list');
const where = [
  option('--url <url>', 'the service (default: TOKENHOUSE_URL, else the one that runs here)', serviceUrl),
  option('--key <key>', 'API key; others can see it in the list of processes, so rather set TOKENHOUSE_KEY'),
] as const;
const wait = option('--wait', 'show how far it is until it is over');

const commandsOf = () => import('../batches.ts');

/** All of them ask the API of the service with a key, so they work from anywhere. */
export const batchCommands: readonly CommandRow[] = [
  loads('list', 'list those of the account, newest first', [limitOption(100, 20), ...where], () =>
    commandsOf().then(({ listBatches }) => listBatches),
  ),
  loads('show', 'show one, and why its file was refused', [batchWord, wait, ...where], () =>
    commandsOf().then(({ showBatch }) => showBatch),
  ),
  loads(
    'create',
    'upload a file of requests (JSON Lines) and run it',
    [
      word('<file>', 'custom_id, method, url and body in each line'),
      option('--endpoint <path>', 'the path of all lines (default: the url of the first)'),
      wait,
      ...where,
    ],
    () => commandsOf().then(({ createBatch }) => createBatch),
  ),
  loads('cancel', 'stop one; what has ended is charged and delivered', [batchWord, ...where], () =>
    commandsOf().then(({ cancelBatch }) => cancelBatch),
  ),
  loads(
    'download',
    'write the results, in the order of the lines',
    [
      batchWord,
      option('--errors', 'the lines without an answer, instead of the answers'),
      option('-o, --output <file>', 'to this file (default: standard output)'),
      ...where,
    ],
    () => commandsOf().then(({ downloadBatch }) => downloadBatch),
  ),
];
