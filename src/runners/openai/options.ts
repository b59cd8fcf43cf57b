/** How the operator describes a model behind an OpenAI-compatible API. */
export type OpenAiOptions = {
  /** The address that `/chat/completions` is added to, like `https://api.openai.com/v1`. */
  readonly baseUrl: string
  readonly model: string
  /** The environment variable that holds the key: the key itself is never in a configuration. */
  readonly apiKeyEnv?: string
  /** What the model is told before everything else. */
  readonly system?: string
  /** How many messages of the conversation so far the model is sent: the newest. */
  readonly historyMax?: number
  /** And how many characters of them. */
  readonly historyCharsMax?: number
  /** More fields of the request, like `temperature`; null leaves out one that would be sent. */
  readonly parameters?: Readonly<Record<string, unknown>>
  /** How long the upstream may take to begin its answer, and between two parts of it. */
  readonly startMs?: number
  readonly pauseMs?: number
}

/** What is not given. */
export const OPENAI_DEFAULTS = {
  historyMax: 200,
  historyCharsMax: 400_000,
  startMs: 120_000,
  pauseMs: 120_000,
} as const

/** One line of the upstream's stream, in characters. */
export const LINE_CHARS_MAX = 1_048_576
/** An answer that comes as a whole, and one of an error, in characters. */
export const ANSWER_CHARS_MAX = 8_388_608
export const ERROR_BODY_CHARS_MAX = 4_096
/** What is told of an upstream's error, in characters. */
export const ERROR_CHARS_MAX = 500
