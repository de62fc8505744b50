/** What one can try first. Prompts are in the language of the page, and JSON in English, as programs have it. */
import type { Feature } from './settings.ts';
import type { PlaygroundState } from './playground.ts';
import type { PlaygroundTexts } from './messages/en.ts';
import type { Search } from './search.ts';

export interface Example {
  readonly name: keyof PlaygroundTexts;
  readonly prompt: keyof PlaygroundTexts;
  /** Without which it makes no sense. */
  readonly needs: Feature;
  readonly search: Search;
  readonly written: Partial<Pick<PlaygroundState, 'tools' | 'schema' | 'resultsByTool'>>;
}

const weather = {
  name: 'get_weather',
  description: 'The weather in a city now.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

const person = {
  type: 'object',
  properties: { name: { type: 'string' }, age: { type: 'integer' }, city: { type: 'string' } },
  required: ['name', 'age', 'city'],
  additionalProperties: false,
};

const json = (value: unknown): string => JSON.stringify(value, null, 2);

export const examples: readonly Example[] = [
  { name: 'exampleStream', prompt: 'examplePrompt', needs: 'streaming', search: {}, written: { tools: '' } },
  {
    name: 'exampleTool',
    prompt: 'exampleToolPrompt',
    needs: 'tools',
    search: {},
    written: { tools: json([weather]), resultsByTool: { get_weather: '{"temperature_c": 18, "sky": "clear"}' } },
  },
  {
    name: 'exampleSchema',
    prompt: 'exampleSchemaPrompt',
    needs: 'json_schema',
    search: { format: 'json_schema' },
    written: { tools: '', schema: json(person) },
  },
];
