import { createScriptedEngine } from '../../../../src/inference/engines/scripted/scripted-engine.ts';
import { scriptRule } from '../../../../src/inference/engines/scripted/script-schema.ts';
import { getActiveResourcesInfo } from 'node:process';
import { engineContract, engineRequest } from '../contract.ts';

engineContract('the scripted engine', () => {
  const timersBefore = timers();
  const engine = createScriptedEngine({
    name: 'demo',
    contextLength: 1_000_000,
    scripts: [
      { when: { last_text: 'brief' }, say: [{ reasoning: 'Well then.' }, { text: 'Hello from the script.' }] },
      { when: { last_text: 'endless' }, say: [{ text: 'again ' }], repeat: 100_000, pace_ms: 5 },
      { when: { last_text: 'silent' }, say: [{ text: 'late' }], first_token_ms: 60_000 },
      {
        when: { last_text: 'broken' },
        say: [{ text: 'one two three' }],
        fault: { after_tokens: 2, type: 'cut' } as const,
      },
      { say: [{ text: 'Pardon?' }] },
    ].map(scriptRule),
  });
  return Promise.resolve({
    engine,
    brief: engineRequest('brief'),
    twoChoices: engineRequest('brief', { choices: 2 }),
    endless: engineRequest('endless'),
    silent: engineRequest('silent'),
    broken: engineRequest('broken'),
    // The only work that outlives a read is a timer. The suite's own time limit is one too.
    working: () => Math.max(0, timers() - timersBefore),
    dispose: () => engine.close(),
  });
});

function timers(): number {
  return getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length;
}
