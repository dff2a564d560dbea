"""A saga: a hotel, a car and a flight, or none of them.

mulligan run trip.py
mulligan run trip.py -i flight=full
"""

from services import request

from mulligan import StepError, program, step


@step(retry=2)
def book_hotel(city: str) -> str:
    return request(f"book a hotel in {city}")


@book_hotel.undo
def cancel_hotel(output: str) -> None:
    request(f"cancel hotel {output}")


@step(retry=2)
def book_car(city: str) -> str:
    return request(f"book a car in {city}")


@book_car.undo
def cancel_car(output: str) -> None:
    request(f"cancel car {output}")


@step(retry=2)
def book_flight(city: str, flight: str) -> str:
    if flight == "full":
        raise StepError("SOLD_OUT", f"the flight to {city} is full", retryable=False)
    return request(f"book a flight to {city}")


@program
def trip(city: str = "Lisbon", flight: str = "free"):
    hotel = book_hotel(city)
    car = book_car(city)
    return {"hotel": hotel, "car": car, "flight": book_flight(city, flight)}
