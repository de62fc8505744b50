/** A model that cannot be loaded, and why, in words for an operator: the rest of a sentence that begins with "The model". */
export class ModelRefused extends Error {
  override readonly name = 'ModelRefused';
}
