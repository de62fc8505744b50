import type { Catalogue } from '../../../i18n/text.ts';

const en = {
  answer: 'Answer',
  arrived: 'It has arrived: {model}, {tokens} tokens, {cost}.',
  balanceNote: 'Every request has a price and a receipt.',
  createKey: 'Create key',
  example: 'What is the capital of France?',
  failed: 'The inference host cannot be reached from this browser at {url}.',
  firstToken: 'first token after {time}',
  keyPlaceholder: 'your key',
  lead: 'From here to your first own request in a minute.',
  makeKey: 'Create a key and put it into your program.',
  mistake1: 'The address lacks /v1, or has it twice: clients of OpenAI take {url}/v1, those of Anthropic {url}.',
  mistake2: 'The key is another one: look for 401 invalid_api_key in the answer.',
  mistake3: 'The program runs elsewhere: {url} is reachable only where this server listens.',
  mistakes: 'Nothing yet? The three usual reasons',
  model: 'Model',
  noModels: 'This server has no model for this account. Ask its operator.',
  prompt: 'Your prompt',
  send: 'Send first request',
  step1: '1. Ask the model from here',
  step2: '2. Call it from your own program',
  step3: '3. Your own request arrives',
  stop: 'Stop',
  title: 'Start',
  useKey: 'The request is made with the key of this session: there is none to create.',
  waiting: 'Waiting for the first request of a key…',
} as const satisfies Catalogue;

export default en;
export type StartTexts = typeof en;
