import type { Constraint } from '../../../../generation/request.ts';

/** Returns the response format. A schema without a name gets one, because several servers require one. */
export function responseFormat(constraint: Constraint): Readonly<Record<string, unknown>> {
  switch (constraint.type) {
    case 'json-object':
      return { response_format: { type: 'json_object' } };
    case 'json-schema': {
      const { name = 'answer', schema } = constraint;
      return { response_format: { type: 'json_schema', json_schema: { name, schema, strict: true } } };
    }
    case 'grammar':
    case 'regex':
      throw new Error(`response_format cannot carry a ${constraint.type}`);
  }
}

export function isJson(type: Constraint['type']): boolean {
  return type === 'json-object' || type === 'json-schema';
}
