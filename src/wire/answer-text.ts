/** For the client, which imports nothing else of the core. */
export { AnswerText } from '../core/answer-text.ts'
