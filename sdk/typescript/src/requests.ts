/** Requests as the wire wants them. */
import { InvalidArgument } from './errors.js';
import type { Message, Sampling, Tool } from './types.js';

/** A question, or the turns of a conversation. */
export type ChatInput = string | Message[];

const SAMPLING = [
  'maxTokens', 'temperature', 'topP', 'topK', 'minP', 'typicalP', 'repeatPenalty', 'presencePenalty', 'frequencyPenalty',
  'repeatLastN', 'stop', 'logprobs', 'minTokens', 'ignoreEos',
] as const;
const CONSTRAINTS = ['jsonSchema', 'grammar', 'regex'] as const;

function text(value: string | object): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

export function samplingOf(options: Sampling): object {
  const out: Record<string, unknown> = {};
  for (const key of SAMPLING) {
    if (options[key] !== undefined) out[key] = options[key];
  }
  if (options.seed !== undefined) out['seed'] = BigInt(options.seed);
  const chosen = CONSTRAINTS.filter((key) => options[key] !== undefined);
  if (chosen.length > 1) {
    throw new InvalidArgument(`${chosen.join(' and ')} cannot both constrain one answer`,
      { code: 'INVALID_ARGUMENT', reason: 'INVALID_ARGUMENT', nextStep: 'Give one of them.' });
  }
  const [constraint] = chosen;
  if (constraint) out['constraint'] = { case: constraint, value: text(options[constraint]!) };
  return out;
}

export function turnOf(turn: Message): object {
  const { role, text: content, toolCalls = [], toolCallId = '', name = '', reasoning = '' } = turn;
  return {
    role, toolCalls, toolCallId, name, reasoning,
    content: content === undefined ? [] : [{ part: { case: 'text', value: content } }],
  };
}

export function toolOf(tool: Tool): object {
  const { name, description = '', parameters } = tool;
  return { name, description, parametersJsonSchema: parameters === undefined ? '' : text(parameters) };
}
