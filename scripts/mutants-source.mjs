// Writes a source so that each of its operators, conditions, cases, early returns, numbers and truth values can be another at run time:
// one bundle has all mutants, and the variable TOKENHOUSE_MUTANT chooses one. With TOKENHOUSE_MUTANTS_REACHED=FILE, the process appends to that
// file which of them it came to.
import ts from 'typescript';

const swapped = new Map([
  [ts.SyntaxKind.LessThanToken, ['<', '<=']],
  [ts.SyntaxKind.LessThanEqualsToken, ['<=', '<']],
  [ts.SyntaxKind.GreaterThanToken, ['>', '>=']],
  [ts.SyntaxKind.GreaterThanEqualsToken, ['>=', '>']],
  [ts.SyntaxKind.EqualsEqualsEqualsToken, ['===', '!==']],
  [ts.SyntaxKind.ExclamationEqualsEqualsToken, ['!==', '===']],
  [ts.SyntaxKind.PlusToken, ['+', '-']],
  [ts.SyntaxKind.MinusToken, ['-', '+']],
  [ts.SyntaxKind.AsteriskToken, ['*', '/']],
  [ts.SyntaxKind.SlashToken, ['/', '*']],
]);
const logical = new Map([
  [ts.SyntaxKind.AmpersandAmpersandToken, ['&&', '||']],
  [ts.SyntaxKind.BarBarToken, ['||', '&&']],
]);

const bounds = new Map([
  ['Math.min', 'max'],
  ['Math.max', 'min'],
]);

/** What the written code calls. In each process and thread the first file creates it. */
const runtime = `const __mutants = (globalThis.__mutants ??= (() => {
  const active = Number(process.env.TOKENHOUSE_MUTANT ?? -1);
  const file = process.env.TOKENHOUSE_MUTANTS_REACHED;
  const reached = new Set();
  if (file !== undefined) process.on('exit', () => process.getBuiltinModule('node:fs').appendFileSync(file, [...reached].join(' ') + ' '));
  const is = (id) => (reached.add(id), id === active);
  const does = { '<': (a, b) => a < b, '<=': (a, b) => a <= b, '>': (a, b) => a > b, '>=': (a, b) => a >= b, '===': (a, b) => a === b,
    '!==': (a, b) => a !== b, '+': (a, b) => a + b, '-': (a, b) => a - b, '*': (a, b) => a * b, '/': (a, b) => a / b,
    '&&': (a, b) => a() && b(), '||': (a, b) => a() || b() };
  return {
    two: (id, here, other, a, b) => does[is(id) ? other : here](a, b),
    not: (id, value) => (is(id) ? !value : value),
    number: (id, value) => (is(id) ? value + (typeof value === 'bigint' ? 1n : 1) : is(id + 1) ? value - (typeof value === 'bigint' ? 1n : 1) : value),
    returns: (id) => !is(id),
    no: () => NaN,
    either: (id, here, other) => (is(id) ? other : here),
  };
})());
`;

/**
 * Returns the code and its mutants. `first` is the number of the first one. Operands with `await` or `yield` cannot be put into a function,
 * so `&&` and `||` of those stay.
 */
export function withMutants(name, text, first) {
  const file = ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true);
  const mutants = [];
  const { factory } = ts;
  const added = (node, what, count = 1) => {
    const id = first + mutants.length;
    const { line } = file.getLineAndCharacterOfPosition(node.getStart(file));
    for (const each of count === 1 ? [what] : [`${what} + 1`, `${what} - 1`]) {
      mutants.push({
        id: first + mutants.length,
        file: name,
        line: line + 1,
        what: each,
        code: text.split('\n')[line].trim(),
      });
    }
    return factory.createNumericLiteral(id);
  };
  const call = (kind, ...values) =>
    factory.createCallExpression(
      factory.createPropertyAccessExpression(factory.createIdentifier('__mutants'), kind),
      undefined,
      values,
    );
  const later = (node) =>
    factory.createArrowFunction(
      undefined,
      undefined,
      [],
      undefined,
      undefined,
      factory.createParenthesizedExpression(node),
    );
  const visit = (node) => {
    if (ts.isTypeNode(node) && !ts.isExpressionWithTypeArguments(node)) return node;
    if (ts.isImportDeclaration(node) || ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) return node;
    // Texts of errors say nothing about what is done.
    if (ts.isThrowStatement(node)) return node;
    const made = visitChildren(node);
    if (ts.isBinaryExpression(node)) return binary(node, made);
    if ((ts.isIfStatement(node) || ts.isWhileStatement(node)) && !isOperation(node.expression)) {
      const condition = call('not', added(node.expression, 'negated'), made.expression);
      return ts.isIfStatement(node)
        ? factory.updateIfStatement(made, condition, made.thenStatement, made.elseStatement)
        : factory.updateWhileStatement(made, condition, made.statement);
    }
    if (ts.isConditionalExpression(node) && !isOperation(node.condition)) {
      const condition = call('not', added(node.condition, 'negated'), made.condition);
      return factory.updateConditionalExpression(
        made,
        condition,
        made.questionToken,
        made.whenTrue,
        made.colonToken,
        made.whenFalse,
      );
    }
    if (node.kind === ts.SyntaxKind.TrueKeyword || node.kind === ts.SyntaxKind.FalseKeyword)
      return call('not', added(node, `not ${node.getText(file)}`), made);
    if (ts.isCaseClause(node)) {
      const expression = call('either', added(node, 'without this case'), made.expression, call('no'));
      return factory.updateCaseClause(made, expression, made.statements);
    }
    if (ts.isNumericLiteral(node) || ts.isBigIntLiteral(node)) {
      return isName(node) ? node : call('number', added(node, node.getText(file), 2), made);
    }
    if (ts.isReturnStatement(node) && isEarly(node)) {
      return factory.createIfStatement(call('returns', added(node, 'without this return')), made);
    }
    const other = bounds.get(node.parent?.expression === node ? node.getText(file) : '');
    if (other !== undefined && ts.isCallExpression(node.parent)) {
      const swap = factory.createPropertyAccessExpression(factory.createIdentifier('Math'), other);
      return call('either', added(node, `Math.${other}`), made, swap);
    }
    return made;
  };
  const binary = (node, made) => {
    const kind = node.operatorToken.kind;
    const pair = swapped.get(kind) ?? logical.get(kind);
    if (pair === undefined) return made;
    const isLazy = logical.has(kind);
    if (isLazy && (waits(node.left) || waits(node.right))) return made;
    if (kind === ts.SyntaxKind.PlusToken && [node.left, node.right].some(isText)) return made;
    const texts = pair.map((each) => factory.createStringLiteral(each));
    const operands = isLazy ? [later(made.left), later(made.right)] : [made.left, made.right];
    return call('two', added(node, pair.join(' → ')), ...texts, ...operands);
  };
  let context;
  const visitChildren = (node) => ts.visitEachChild(node, visit, context);
  const result = ts.transform(file, [
    (given) => {
      context = given;
      return (root) => ts.visitEachChild(root, visit, context);
    },
  ]);
  const printed = ts.createPrinter().printFile(result.transformed[0]);
  return { code: runtime + printed, mutants };
}

const isOperation = (node) =>
  ts.isParenthesizedExpression(node)
    ? isOperation(node.expression)
    : ts.isBinaryExpression(node) && (swapped.has(node.operatorToken.kind) || logical.has(node.operatorToken.kind));

const isText = (node) => ts.isStringLiteralLike(node) || ts.isTemplateExpression(node);

/** A number that names a member, as in `{ 1: … }`, or is a part of an `enum`. */
const isName = ({ parent, ...node }) =>
  (ts.isPropertyAssignment(parent) && parent.name.pos === node.pos) || ts.isEnumMember(parent);

/** Whether another statement of the function could run instead. */
function isEarly(node) {
  const { parent } = node;
  if (!ts.isBlock(parent)) return ts.isIfStatement(parent);
  return !(ts.isFunctionLike(parent.parent) && parent.statements.at(-1) === node);
}

function waits(node) {
  if (ts.isAwaitExpression(node) || ts.isYieldExpression(node)) return true;
  if (ts.isFunctionLike(node)) return false;
  return ts.forEachChild(node, (child) => waits(child) || undefined) ?? false;
}
