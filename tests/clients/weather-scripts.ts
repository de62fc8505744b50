import { scriptedModel } from '../support/service.ts';

/**
 * A model for every client: asked by the last message, it says a text, thinks, answers in JSON, calls tools once, twice or
 * step by step, fails before or within its answer, or drips.
 */
export const weatherScripts = (id: string): string =>
  scriptedModel(
    `
- when: { last_text: "city as JSON" }
  say: [ { text: ['{"name":"Bern"', ',"inhabitants":134000', ',"tags":["old"', ']}'] } ]
- when: { last_text: "city by json tool" }
  say: [ { tool_call: { name: json, arguments: { name: Bern, inhabitants: 134000, tags: [ old ] } } } ]
- when: { last_text: "city by call" }
  say: [ { tool_call: { name: city, arguments: { name: Bern, inhabitants: 134000, tags: [ old ] } } } ]
- when: { last_text: "weather" }
  say: [ { tool_call: { name: get_weather, arguments: ['{"ci', 'ty":', '"Bern"}'] } } ]
- when: { last_text: "two cities" }
  say:
    - tool_call: { name: get_weather, arguments: ['{"ci', 'ty":"Bern"}'] }
    - tool_call: { name: get_weather, arguments: ['{"city":', '"Rom"}'] }
- when: { last_text: "step by step" }
  say: [ { tool_call: { name: get_weather, arguments: { city: Bern } } } ]
- when: { last_role: tool, turn: 1, last_text: "first" }
  say: [ { tool_call: { name: get_weather, arguments: { city: Rom } } } ]
- when: { last_role: tool, turn: 2 }
  say: [ { text: "Both are sunny." } ]
- when: { last_role: tool }
  say: [ { text: "It is sunny." } ]
- when: { last_text: "think" }
  say: [ { reasoning: "hm well" }, { text: "yes sir" } ]
- when: { last_text: "drip" }
  say: [ { text: "drop" } ]
  repeat: 100000
  pace_ms: 20
- when: { last_text: "fail in the middle" }
  say: [ { text: "one two three" } ]
  pace_ms: 5
  fault: { after_tokens: 2, type: error, code: backend_timeout }
- when: { last_text: "overloaded" }
  say: []
  fault: { after_tokens: 0, type: error, code: backend_overloaded }
- when: { last_text: "internal error" }
  say: []
  fault: { after_tokens: 0, type: error, code: internal_error }
- say: [ { text: "hello world" } ]
`,
    { id },
  );
